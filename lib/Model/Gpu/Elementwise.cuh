// Promises: argmax, random values, and what gated MLPs do
// behind a product. Twin: lib/Model/HostOps.cpp. Does not: what a pack's kernels
// of form rows do (RowCalls.h).
#ifndef KDAC_LIB_MODEL_GPU_ELEMENTWISE_CUH
#define KDAC_LIB_MODEL_GPU_ELEMENTWISE_CUH

#include "Cuda.cuh"

namespace kdac::model::gpu {

/// hybrid-model.md 1.6 and 2.2.
DEVICE float activated(const ActivationArgs &a, float gate, float up) {
  if (a.isSitu)
    return a.beta * tanh(gate / a.beta) * sigmoid(gate) * a.linear *
           tanh(up / a.linear);
  return gate * sigmoid(gate) * up;
}

/// The larger value, the smaller index of equals; NaN is below everything.
DEVICE void takeLarger(float &value, int &index, float other, int otherIndex) {
  if (other > value || (other == value && otherIndex < index)) {
    value = other;
    index = otherIndex;
  }
}

DEVICE void argmaxRow(const float *x, int width, int *best) {
  SHARED static float values[32];
  SHARED static int indices[32];
  float value = -__builtin_inff();
  int index = 0x7fffffff;
  int fours = width / 4;
#pragma unroll 8
  for (int i = thread(); i < fours; i += threads()) {
    Quad q = *reinterpret_cast<const Quad *>(x + 4 * i);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      takeLarger(value, index, bits(q.w[e]), 4 * i + e);
  }
  for (int c = 4 * fours + thread(); c < width; c += threads())
    takeLarger(value, index, x[c], c);
  for (int mask = 16; mask > 0; mask >>= 1)
    takeLarger(value, index, shuffleXor(value, mask), shuffleXor(index, mask));
  if (lane() == 0) {
    values[warp()] = value;
    indices[warp()] = index;
  }
  barrier();
  if (thread() == 0) {
    for (int i = 1; i < threads() / 32; ++i)
      takeLarger(value, index, values[i], indices[i]);
    *best = index == 0x7fffffff ? 0 : index;
  }
}

KERNEL void argmax_rows(const float *x, int stride, int width, int *best) {
  beginKernel();
  argmaxRow(x + int64_t(blockX()) * stride, width, best + blockX());
}

/// Random signs and mantissas with the exponent of 1/√in, as RandomTensors has
/// them; `count` values in pairs.
KERNEL void random_bf16(uint32_t *to, int64_t pairs, int exponent,
                        uint32_t seed) {
  beginKernel();
  int64_t step = int64_t(gridX()) * threads();
  for (int64_t i = int64_t(blockX()) * threads() + thread(); i < pairs;
       i += step) {
    uint64_t z = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull + seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    auto draw = static_cast<uint32_t>(z >> 32);
    to[i] = (draw & 0x807f807fu) | static_cast<uint32_t>(exponent << 23) |
            static_cast<uint32_t>(exponent << 7);
  }
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_ELEMENTWISE_CUH
