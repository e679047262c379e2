#include "MatmulCall.h"
#include "RowCalls.h"

namespace kdac::model {

StatusOr<const PackVariant *> selectMatmul(const PackReader &pack,
                                           const Place &place,
                                           const ModelConfig &config,
                                           Element type, bool isGated) {
  RowOp joined = isGated ? activationOf(config) : RowOp::None;
  Request request;
  request.options = {{"form", "matmul"},
                     {"rows", std::string(spell(joined))},
                     {"dtype", std::string(spell(dtypeOf(type)))}};
  return selectVariant(pack, place, request);
}

bool suitsMatmul(const Product &p) {
  return p.w->out % 2 == 0 && p.y.stride % 2 == 0;
}

/// Tensors and their sizes, of one group.
static void setTensors(NamedCall &call, Rows x, const Matrix &w, Rows y) {
  bool isF32 = y.type == Element::F32;
  call.rows("x", x);
  call.pointer("weights", w.data);
  call.pointer("out", isF32 ? nullptr : y.data);
  call.pointer("sums", isF32 ? y.data : nullptr);
  call.size("T", y.rows);
  call.size("D", w.in);
  call.size("E", w.out);
  call.size("R", x.rows);
  call.size("out_stride", y.stride);
  call.size("sums_stride", y.stride);
}

static void setGroups(NamedCall &call, const SortedEntries &entries) {
  call.pointer("tiles", entries.tileList);
  call.pointer("starts", entries.starts);
  call.pointer("order", entries.order);
  call.size("G", entries.experts);
  call.size("tile_count", entries.tiles);
  call.size("each", entries.each);
}

void setMatmul(NamedCall &call, const Product &p) {
  setTensors(call, p.x, *p.w, p.y);
  SortedEntries all;
  all.experts = 1;
  all.tiles = (p.y.rows + matmulRows - 1) / matmulRows;
  setGroups(call, all);
}

void setExperts(NamedCall &call, const ModelConfig &config, Rows x,
                const Matrix &w, const Matrix &up, Rows y,
                const SortedEntries &entries) {
  setTensors(call, x, w, y);
  setGroups(call, entries);
  call.pointer("up", up.data);
  call.scale("beta", static_cast<float>(config.situBeta));
  call.scale("linear", static_cast<float>(config.situLinearBeta));
}

} // namespace kdac::model
