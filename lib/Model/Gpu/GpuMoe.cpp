// Mixture of experts on a GPU.
#include "GpuOps.h"

#include <algorithm>

namespace kdac::model {

void GpuOps::route(Rows logits, const Vector &bias, const Routing &to) {
  gpu::RouteArgs a = {};
  a.logits = logits.row(0);
  a.bias = static_cast<const float *>(bias.device);
  a.expert = to.expert;
  a.weight = to.weight;
  a.stride = static_cast<int>(logits.stride);
  a.experts = static_cast<int>(config.experts);
  a.topK = static_cast<int>(to.topK);
  a.groups = static_cast<int>(config.groups);
  a.topGroups = static_cast<int>(config.topGroups);
  a.renormalise = config.renormalise;
  a.scale = static_cast<float>(config.routedScale);
  constexpr int64_t usual = 256; // experts that fit few registers
  launch(config.experts <= usual ? "route_rows8" : "route_rows32",
         {{logits.rows, 1, 1}, 32}, a);
}

/// Every entry reads its expert's matrices: right for any number of rows, fast
/// for as few as hardly share experts.
void GpuOps::expertsDirectly(Rows x, const Routing &routing,
                             const MoeWeights &w, bool addsShared, Rows y) {
  constexpr int64_t warps = 8, most = 65535; // of a grid's second dimension
  constexpr int mostWarps = 16; // of the second kernel, one for each expert
  const MlpWeights &base = w.experts[0];
  gpu::DirectArgs d = {};
  d.topK = static_cast<int>(routing.topK);
  d.chosen = d.topK + addsShared;
  d.gate = base.gate.data;
  d.up = base.up.data;
  d.down = base.down.data;
  d.sharedGate = w.shared.gate.data;
  d.sharedUp = w.shared.up.data;
  d.sharedDown = w.shared.down.data;
  d.hidden = scratch.hidden;
  d.xStride = static_cast<int>(x.stride);
  d.yStride = static_cast<int>(y.stride);
  d.in = static_cast<int>(base.gate.in);
  d.width = static_cast<int>(base.gate.out);
  d.out = static_cast<int>(base.down.out);
  d.activation = activation();
  int64_t rowsOfLaunch = most / d.chosen;
  for (int64_t row = 0; row < x.rows; row += rowsOfLaunch) {
    int64_t rows = std::min(rowsOfLaunch, x.rows - row);
    d.expert = routing.expert + row * d.topK;
    d.weight = routing.weight + row * d.topK;
    d.x = x.from(row).data;
    d.y = y.from(row).data;
    launch(typed("experts_in_f32", "experts_in_bf16"),
           {{(d.width + warps - 1) / warps, rows * d.chosen, 1}}, d);
    int64_t blocks = (d.out + gpu::outsOfBlock - 1) / gpu::outsOfBlock;
    launch(typed("experts_out_f32", "experts_out_bf16"),
           {{blocks, rows, 1}, std::min(d.chosen, mostWarps) * 32}, d);
  }
}

/// Rows sorted by expert: each expert's matrices are read once.
void GpuOps::expertsSorted(Rows x, const Routing &routing, const MoeWeights &w,
                           Rows y) {
  const MlpWeights &base = w.experts[0];
  int64_t entries = x.rows * routing.topK, tiles = tilesOf(entries);
  auto experts = static_cast<int>(w.experts.size());
  launch("sort_entries", {{experts, 1, 1}, 1024}, routing.expert,
         static_cast<int>(entries), scratch.starts, scratch.order,
         scratch.place);
  launch("list_tiles", {{1, 1, 1}, 256}, scratch.starts, experts,
         static_cast<int>(matmulRows), static_cast<int>(tiles), scratch.tiles);
  SortedEntries sorted;
  sorted.experts = experts;
  sorted.tiles = tiles;
  sorted.tileList = scratch.tiles;
  sorted.starts = scratch.starts;
  sorted.order = scratch.order;
  sorted.each = routing.topK;
  Rows hidden = {scratch.hidden, entries, base.gate.out, base.gate.out,
                 limits.type};
  setExperts(gatedKernel->call, config, x, base.gate, base.up, hidden, sorted);
  launchPacked(*gatedKernel);
  sorted.order = nullptr;
  sorted.each = 1;
  Rows parts = {scratch.parts, entries, base.down.out, base.down.out,
                limits.type};
  setExperts(matmulKernel->call, config, hidden, base.down, Matrix(), parts,
             sorted);
  launchPacked(*matmulKernel);
  launchRows(RowOp::Combine, 0, [&](NamedCall &call) {
    setCombine(call, parts, scratch.place, routing.weight, routing.topK, y);
  });
}

constexpr int64_t directRows = 16; // so few hardly share experts

void GpuOps::experts(Rows x, const Routing &routing, const MoeWeights &w,
                     Rows y) {
  if (x.rows > directRows && limits.type == Element::BF16)
    expertsSorted(x, routing, w, y);
  else
    expertsDirectly(x, routing, w, false, y);
}

bool GpuOps::allExperts(Rows x, const Routing &routing, const MoeWeights &w,
                        Rows y) {
  if (x.rows > directRows || !w.shared.gate ||
      w.shared.gate.out != config.expertWidth ||
      w.shared.gate.in != config.expertInput)
    return false;
  expertsDirectly(x, routing, w, true, y);
  return true;
}

} // namespace kdac::model
