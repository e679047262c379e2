// KDA layers on the host: recurrences by kernels of a pack.
#include "HostOps.h"
#include "Lanes.h"
#include "kdac/Runtime/Select.h"

#include <algorithm>
#include <cmath>

namespace kdac::model {

static KdaParameters parametersOf(const KdaWeights &w) {
  return {w.aLog.data(),  w.dtBias.data(), w.qConv.data(),
          w.kConv.data(), w.vConv.data(),  w.oNorm.data()};
}

Status HostOps::loadKernel(const PackReader &pack, bool isStep) {
  StatusOr<const PackVariant *> variant = selectVariant(
      pack, Place(), kdaRequest(config, isStep, isStep, Element::F32));
  if (!variant.ok())
    return variant.status();
  StatusOr<HostKernel> kernel = HostKernel::load(pack, **variant);
  if (!kernel.ok())
    return kernel.status();
  auto call = std::make_unique<KdaKernel>(std::move(*kernel));
  StatusOr<int64_t> bytes =
      kdaWorkspaceBytes(call->call, config, limits.pieces, limits.tokens);
  if (!bytes.ok())
    return bytes.status();
  if (*bytes > workspace.size()) {
    StatusOr<AlignedBuffer> memory =
        AlignedBuffer::allocate(*bytes, "a kernel's workspace");
    if (!memory.ok())
      return memory.status();
    workspace = std::move(*memory);
  }
  (isStep ? step : chunk) = std::move(call);
  return Status::success();
}

void HostOps::launch(const KdaKernel &kernel) {
  if (Status s = kernel.kernel.launch(pool, kernel.call.arguments()); !s.ok())
    fail(s);
}

/// Single tokens take the step kernel, which has everything in it; others the
/// chunk kernel and its neighbours.
void HostOps::kdaLayer(const BatchView &batch, const KdaWeights &w, Rows q,
                       Rows k, Rows v, Rows decay, Rows beta, Rows z,
                       const KdaCache &cache, Rows out) {
  if (!fits(batch.tokens, batch.count))
    return;
  KdaParameters parameters = parametersOf(w);
  if (batch.isDecode) {
    setRecurrence(step->call, config, batch, parameters, {q, k, v}, decay, beta,
                  cache, out, workspace.bytes());
    setNeighbours(step->call, config, parameters, cache, z);
    return launch(*step);
  }
  int64_t stride = paddedWidth(q.width);
  auto place = [&](int64_t i) {
    return Rows{convolved.floats() + i * limits.tokens * stride, batch.tokens,
                q.width, stride, Element::F32};
  };
  shortConv(batch, q, w.qConv, cache.q, place(0));
  shortConv(batch, k, w.kConv, cache.k, place(1));
  shortConv(batch, v, w.vConv, cache.v, place(2));
  setRecurrence(chunk->call, config, batch, parameters,
                {place(0), place(1), place(2)}, decay, beta, cache, out,
                workspace.bytes());
  launch(*chunk);
  gatedNorm(out, w.oNorm, config.normEps, z);
}

/// One channel of one piece: `window` holds the last W raw inputs.
static void convolveChannel(const Piece &piece, Rows x, int64_t c,
                            const float *w, int64_t taps, float *cache,
                            Rows y) {
  float window[8] = {};
  if (piece.past > 0)
    std::copy_n(cache, taps, window);
  for (int64_t t = piece.begin; t < piece.begin + piece.count; ++t) {
    std::copy(window + 1, window + taps, window);
    window[taps - 1] = x.row(t)[c];
    float sum = 0;
    for (int64_t j = 0; j < taps; ++j)
      sum += w[j] * window[j];
    y.row(t)[c] = sum * sigmoid(sum);
  }
  std::copy_n(window, taps, cache);
}

void HostOps::shortConv(const BatchView &batch, Rows x, const Vector &w,
                        void *cache, Rows y) {
  constexpr int64_t block = 64;
  int64_t taps = config.convWidth, blocks = (x.width + block - 1) / block;
  parallel(batch.count * blocks, [&](int64_t i, float *) {
    const Piece &piece = batch.pieces[i / blocks];
    int64_t begin = i % blocks * block, end = std::min(begin + block, x.width);
    for (int64_t c = begin; c < end && piece.count > 0; ++c)
      convolveChannel(
          piece, x, c, w.data() + c * taps, taps,
          static_cast<float *>(cache) + (piece.slot * x.width + c) * taps, y);
  });
}

void HostOps::gatedNorm(Rows x, const Vector &w, double eps, Rows z) {
  auto dim = static_cast<int64_t>(w.size());
  parallel(x.rows, [&](int64_t i, float *) {
    for (int64_t at = 0; at < x.width; at += dim) {
      float *head = x.row(i) + at;
      const float *gate = z.row(i) + at;
      float mean = squares(head, dim) / static_cast<float>(dim);
      float factor = 1 / std::sqrt(mean + static_cast<float>(eps));
      for (int64_t c = 0; c < dim; ++c)
        head[c] *= factor * w[static_cast<size_t>(c)] * sigmoid(gate[c]);
    }
  });
}

} // namespace kdac::model
