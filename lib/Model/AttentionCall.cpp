#include "AttentionCall.h"

#include <algorithm>
#include <cmath>

namespace kdac::model {

StatusOr<const PackVariant *> selectAttention(const PackReader &pack,
                                              const Place &place,
                                              const ModelConfig &config,
                                              Element type) {
  DType dtype = type == Element::F32 ? DType::F32 : DType::BF16;
  int64_t value = config.latentRank, key = value + config.ropeDim;
  // Which none may have: the error lists what there is.
  auto rounded = [](int64_t x) {
    return std::max<int64_t>(1, (x + pageKeys - 1) / pageKeys) * pageKeys;
  };
  Variant best;
  best.valueDim = rounded(value);
  best.keyDim = best.valueDim + rounded(config.ropeDim);
  bool isFound = false;
  for (const PackVariant &v : pack.manifest().variants) {
    const Variant &has = v.variant;
    bool fits = has.form == Form::Attention && has.dtype == dtype &&
                has.valueDim >= value &&
                has.keyDim - has.valueDim >= key - value &&
                place.fit(pack.manifest(), v.launches.front()) > 0;
    if (fits && (!isFound || has.keyDim < best.keyDim))
      best = has;
    isFound |= fits;
  }
  Request request;
  request.options = {{"form", "attention"},
                     {"dtype", std::string(spell(dtype))},
                     {"key-dim", std::to_string(best.keyDim)},
                     {"value-dim", std::to_string(best.valueDim)}};
  StatusOr<const PackVariant *> found = selectVariant(pack, place, request);
  if (!found.ok())
    return found.status().with(
        config.name + ": kv_lora_rank = " + std::to_string(value) +
        " and qk_rope_head_dim = " + std::to_string(config.ropeDim));
  return found;
}

/// What the sizes of a call are, whatever its tensors.
static void setSizes(NamedCall &call, const ModelConfig &config,
                     int64_t count) {
  call.size("N", count);
  call.size("H", config.heads);
  call.size("D", config.cacheDim());
  call.size("R", config.latentRank);
}

void setAttention(NamedCall &call, const ModelConfig &config,
                  const MlaCache &cache, const LatentBatch &batch) {
  setSizes(call, config, batch.count);
  call.pointer("q", batch.query);
  call.pointer("pages", cache.pages);
  call.pointer("table", cache.table);
  call.pointer("slots", batch.slots);
  call.pointer("lengths", batch.lengths);
  call.pointer("out", batch.out);
  call.pointer("workspace", batch.workspace);
  call.size("P", cache.pageCount);
  call.size("S", cache.slots);
  call.size("table_pitch", cache.pagesPerSlot);
  call.scale("scale", 1 / std::sqrt(static_cast<float>(config.queryDim())));
}

StatusOr<int64_t> attentionWorkspaceBytes(NamedCall &call,
                                          const ModelConfig &config,
                                          int64_t pieces) {
  // Fewer sequences have more splits each: no count has the most for sure.
  int64_t most = 0;
  for (int64_t count = 1; count <= pieces; ++count) {
    setSizes(call, config, count);
    StatusOr<int64_t> bytes = call.workspaceBytes();
    if (!bytes.ok())
      return bytes;
    most = std::max(most, *bytes);
  }
  return most;
}

} // namespace kdac::model
