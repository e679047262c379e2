#include "RowCalls.h"

#include <algorithm>

namespace kdac::model {

StatusOr<const PackVariant *> selectRows(const PackReader &pack,
                                         const Place &place, RowOp op,
                                         Element type, int64_t width) {
  DType dtype = dtypeOf(type);
  Request request;
  request.options = {{"form", "rows"},
                     {"rows", std::string(spell(op))},
                     {"dtype", std::string(spell(dtype))}};
  if (holdsRow(op)) {
    int64_t best = width; // which none may have: the error lists what there is
    bool isFound = false;
    for (const PackVariant &v : pack.manifest().variants) {
      bool fits = v.variant.rows == op && v.variant.dtype == dtype &&
                  v.variant.width >= width &&
                  place.fit(pack.manifest(), v.launches.front()) > 0;
      if (!fits)
        continue;
      best = isFound ? std::min(best, v.variant.width) : v.variant.width;
      isFound = true;
    }
    request.options.emplace_back("width", std::to_string(best));
  }
  return selectVariant(pack, place, request);
}

Status checkWidths(const ModelConfig &c, int64_t multiple,
                   const std::string &where) {
  for (auto [name, width] : {std::pair("hidden_size", c.hidden),
                             {"KDA head width", c.kdaDim},
                             {"q_lora_rank", c.queryRank},
                             {"kv_lora_rank", c.latentRank},
                             {"qk_rope_head_dim", c.ropeDim},
                             {"qk_nope_head_dim", c.nopeDim},
                             {"v_head_dim", c.valueDim},
                             {"intermediate_size", c.denseWidth},
                             {"moe_intermediate_size", c.expertWidth},
                             {"expert input width", c.expertInput}})
    if (width % multiple != 0)
      return Status(ErrorCode::Unsupported, c.name + ": " + where + " " + name +
                                                " = " + std::to_string(width) +
                                                " should be a multiple of " +
                                                std::to_string(multiple));
  return Status::success();
}

/// The result and its shape.
static void setResult(NamedCall &call, Rows y) {
  call.rows("out", y);
  call.size("T", y.rows);
  call.size("D", y.width);
}

void setNorm(NamedCall &call, Rows branch, Rows x, const void *weight,
             double eps, Rows y) {
  call.rows("x", x);
  call.rows("branch", branch);
  call.rows("sum", branch.data ? x : Rows());
  setResult(call, y);
  call.pointer("weight", weight);
  call.scale("eps", static_cast<float>(eps));
}

void setAdd(NamedCall &call, Rows x, Rows branch, Rows y) {
  call.rows("x", x);
  call.rows("branch", branch);
  setResult(call, y);
}

void setProduct(NamedCall &call, const ModelConfig &config, Rows gate, Rows up,
                Rows y) {
  call.rows("gate", gate);
  call.rows("up", up);
  setResult(call, y);
  call.scale("beta", static_cast<float>(config.situBeta));
  call.scale("linear", static_cast<float>(config.situLinearBeta));
}

void setGather(NamedCall &call, Rows x, const int32_t *index, Rows y) {
  call.rows("x", x);
  call.pointer("index", index);
  call.size("R", x.rows);
  setResult(call, y);
}

void setCombine(NamedCall &call, Rows x, const int32_t *index,
                const float *weight, int64_t entries, Rows y) {
  setGather(call, x, index, y);
  call.pointer("scales", weight);
  call.size("E", entries);
}

void listRows(const Piece *pieces, int64_t count, int32_t *slots,
              int32_t *positions) {
  for (const Piece *piece = pieces; piece < pieces + count; ++piece)
    for (int64_t t = 0; t < piece->count; ++t) {
      slots[piece->begin + t] = piece->slot;
      positions[piece->begin + t] = static_cast<int32_t>(piece->past + t);
    }
}

void setLatent(NamedCall &call, const ModelConfig &config, Rows c,
               const void *weight, double eps, const int32_t *slots,
               const int32_t *positions, const MlaCache &cache) {
  call.rows("x", c);
  call.size("T", c.rows);
  call.size("D", cache.cacheDim);
  call.pointer("weight", weight);
  call.size("rank", config.latentRank);
  call.scale("eps", static_cast<float>(eps));
  call.pointer("slots", slots);
  call.pointer("positions", positions);
  call.pointer("table", cache.table);
  call.size("S", cache.slots);
  call.size("P", cache.pagesPerSlot);
  call.size("page", cache.pageTokens);
  call.pointer("out", cache.pages);
  call.size("out_stride", cache.cacheDim);
  call.size("R", cache.pageCount * cache.pageTokens);
}

void setMix(NamedCall &call, Rows stream, int64_t pitch, int64_t entries,
            const void *query, double eps, Rows y) {
  call.rows("x", stream);
  call.size("x_pitch", pitch);
  call.size("E", entries + 1);
  call.pointer("query", query);
  call.scale("eps", static_cast<float>(eps));
  setResult(call, y);
}

} // namespace kdac::model
