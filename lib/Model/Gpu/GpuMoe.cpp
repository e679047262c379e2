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
  launch("route_rows", {{logits.rows, 1, 1}, 32}, a);
}

/// Every entry reads its expert's matrices: right for any number of rows, fast
/// for as few as hardly share experts.
void GpuOps::expertsDirectly(Rows x, const Routing &routing,
                             const MoeWeights &w, Rows y) {
  constexpr int64_t warps = 8, most = 65535; // of a grid's second dimension
  const MlpWeights &base = w.experts[0];
  auto topK = static_cast<int>(routing.topK);
  int64_t in = base.gate.in, width = base.gate.out, out = base.down.out;
  int64_t rowsOfLaunch = most / routing.topK;
  for (int64_t row = 0; row < x.rows; row += rowsOfLaunch) {
    int64_t rows = std::min(rowsOfLaunch, x.rows - row);
    const int *expert = routing.expert + row * routing.topK;
    const float *weight = routing.weight + row * routing.topK;
    auto at = [&](Rows r) -> void * {
      return static_cast<char *>(r.data) + row * r.stride * bytesOf(r.type);
    };
    launch(typed("experts_in_f32", "experts_in_bf16"),
           {{(width + warps - 1) / warps, rows * routing.topK, 1}}, expert,
           topK, at(x), static_cast<int>(x.stride), base.gate.data,
           base.up.data, scratch.hidden, static_cast<int>(in),
           static_cast<int>(width), activation());
    launch(typed("experts_out_f32", "experts_out_bf16"),
           {{(out + warps - 1) / warps, rows, 1}}, expert, weight, topK,
           scratch.hidden, base.down.data, at(y), static_cast<int>(y.stride),
           static_cast<int>(out), static_cast<int>(width));
  }
}

void GpuOps::experts(Rows x, const Routing &routing, const MoeWeights &w,
                     Rows y) {
  expertsDirectly(x, routing, w, y);
}

} // namespace kdac::model
