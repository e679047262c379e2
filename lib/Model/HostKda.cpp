// KDA layers on the host: recurrences by kernels of a pack.
#include "HostOps.h"
#include "Lanes.h"
#include "kdac/Runtime/Select.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kdac::model {

namespace {

std::string shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// What the pack must have: states in slots, all in f32.
Request kernelRequest(const ModelConfig &config, bool isStep) {
  std::string dim = std::to_string(config.kdaDim);
  Request request;
  request.options = {{"form", isStep ? "step" : "chunk"},
                     {"key-dim", dim},
                     {"value-dim", dim},
                     {"dtype", "f32"},
                     {"gate", config.gateLowerBound ? "bounded" : "softplus"},
                     {"slots", "i32"}};
  if (config.gateLowerBound)
    request.options.push_back(
        {"lower-bound", shortest(*config.gateLowerBound)});
  if (isStep) {
    request.options.push_back({"conv", std::to_string(config.convWidth)});
    request.options.push_back({"norm", "sigmoid"});
    request.options.push_back({"norm-eps", shortest(config.normEps)});
  }
  return request;
}

} // namespace

Status HostOps::loadKernel(const PackReader &pack, bool isStep) {
  StatusOr<const PackVariant *> variant =
      selectVariant(pack, Place(), kernelRequest(config, isStep));
  if (!variant.ok())
    return variant.status();
  StatusOr<HostKernel> kernel = HostKernel::load(pack, **variant);
  if (!kernel.ok())
    return kernel.status();
  auto call = std::make_unique<NamedCall>(std::move(*kernel));
  // The largest call decides the scratch.
  call->size("N", limits.pieces);
  call->size("T", limits.tokens);
  call->size("H", config.kdaHeads);
  call->size("HV", config.kdaHeads);
  call->pointer("offsets", this);
  StatusOr<int64_t> bytes = call->workspaceBytes();
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

void HostOps::setKda(NamedCall &call, const BatchView &batch,
                     const KdaWeights &w, const Rows (&qkv)[3], Rows decay,
                     Rows beta, const KdaCache &cache, Rows out) const {
  const char *names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    call.pointer(names[i], qkv[i].data);
    call.size(std::string(names[i]) + "_stride", qkv[i].stride);
  }
  call.pointer("g", decay.data);
  call.size("g_stride", decay.stride);
  call.pointer("beta", beta.data);
  call.size("beta_stride", beta.stride);
  call.pointer("A_log", w.aLog.data());
  call.pointer("dt_bias", w.dtBias.data());
  call.pointer("h0", cache.state);
  call.pointer("ht", cache.state);
  call.pointer("slots", batch.slots);
  call.pointer("sources", batch.sources);
  call.pointer("offsets", batch.offsets);
  call.pointer("out", out.data);
  call.size("out_stride", out.stride);
  call.pointer("workspace", workspace.bytes());
  call.size("N", batch.count);
  call.size("T", batch.tokens);
  call.size("H", config.kdaHeads);
  call.size("HV", config.kdaHeads);
  int64_t matrix = config.kdaDim * config.kdaDim;
  call.size("pool", cache.slots);
  call.size("head_pitch", matrix);
  call.size("slot_pitch", config.kdaHeads * matrix);
  call.scale(1 / std::sqrt(static_cast<float>(config.kdaDim)));
}

void HostOps::kdaChunk(const BatchView &batch, const KdaWeights &w, Rows q,
                       Rows k, Rows v, Rows decay, Rows beta,
                       const KdaCache &cache, Rows out) {
  if (!fits(batch.tokens, batch.count))
    return;
  setKda(*chunk, batch, w, {q, k, v}, decay, beta, cache, out);
  if (Status s = chunk->launch(pool); !s.ok())
    fail(s);
}

void HostOps::kdaStep(const BatchView &batch, const KdaWeights &w, Rows q,
                      Rows k, Rows v, Rows decay, Rows beta, Rows z,
                      const KdaCache &cache, Rows out) {
  if (!fits(batch.tokens, batch.count))
    return;
  setKda(*step, batch, w, {q, k, v}, decay, beta, cache, out);
  step->pointer("q_conv", w.qConv.data());
  step->pointer("k_conv", w.kConv.data());
  step->pointer("v_conv", w.vConv.data());
  step->pointer("q_cache", cache.q);
  step->pointer("k_cache", cache.k);
  step->pointer("v_cache", cache.v);
  for (const char *name : {"q_cache_pitch", "k_cache_pitch", "v_cache_pitch"})
    step->size(name, config.kdaWidth() * config.convWidth);
  step->pointer("z", z.data);
  step->size("z_stride", z.stride);
  step->pointer("norm_weight", w.oNorm.data());
  if (Status s = step->launch(pool); !s.ok())
    fail(s);
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
                        float *cache, Rows y) {
  constexpr int64_t block = 64;
  int64_t taps = config.convWidth, blocks = (x.width + block - 1) / block;
  parallel(batch.count * blocks, [&](int64_t i, float *) {
    const Piece &piece = batch.pieces[i / blocks];
    int64_t begin = i % blocks * block, end = std::min(begin + block, x.width);
    for (int64_t c = begin; c < end && piece.count > 0; ++c)
      convolveChannel(piece, x, c, w.data() + c * taps, taps,
                      cache + (piece.slot * x.width + c) * taps, y);
  });
}

void HostOps::gatedNorm(Rows x, const Vector &w, double eps, Rows z, Rows y) {
  auto dim = static_cast<int64_t>(w.size());
  parallel(x.rows, [&](int64_t i, float *) {
    for (int64_t at = 0; at < x.width; at += dim) {
      const float *from = x.row(i) + at, *gate = z.row(i) + at;
      float *to = y.row(i) + at;
      float mean = squares(from, dim) / static_cast<float>(dim);
      float factor = 1 / std::sqrt(mean + static_cast<float>(eps));
      for (int64_t c = 0; c < dim; ++c)
        to[c] = from[c] * factor * w[static_cast<size_t>(c)] * sigmoid(gate[c]);
    }
  });
}

} // namespace kdac::model
