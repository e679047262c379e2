// Promises: what surrounds the chunk kernel of a KDA layer: short convolutions
// with their caches, the gated norm. Twin: lib/Model/HostKda.cpp.
#ifndef KDAC_LIB_MODEL_GPU_KDA_CUH
#define KDAC_LIB_MODEL_GPU_KDA_CUH

#include "Cuda.cuh"

namespace kdac::model::gpu {

/// The piece that has `row`; pieces are in the order of their rows.
DEVICE int pieceOf(const PieceArgs *pieces, int count, int64_t row) {
  int low = 0, high = count - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (pieces[middle].begin <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

constexpr int convRows = 32; ///< rows of one thread
constexpr int taps = 4;

/// A thread takes a channel of `convRows` rows. Caches are only read: the
/// inputs before a piece; keepInputs replaces them afterwards.
template <typename T>
DEVICE void shortConv(const PieceArgs *pieces, int pieceCount, const T *x,
                      int xStride, const T *w, const T *cache, T *y,
                      int yStride, int width, int rows) {
  int c = blockX() * threads() + thread();
  if (c >= width)
    return;
  float weight[taps], window[taps];
#pragma unroll
  for (int j = 0; j < taps; ++j)
    weight[j] = load(w + c * taps + j);
  int64_t first = int64_t(blockY()) * convRows;
  int64_t end = least(first + convRows, int64_t(rows));
  int index = pieceOf(pieces, pieceCount, first);
  for (int64_t t = first; t < end; ++index) {
    PieceArgs p = pieces[index];
    const T *kept = cache + (int64_t(p.slot) * width + c) * taps;
    // Inputs before row t, the newest last: of this piece, of its past, or
    // none.
#pragma unroll
    for (int j = 1; j < taps; ++j) {
      int64_t at = t - taps + j, old = at - p.begin + taps;
      window[j] = at >= p.begin ? load(x + at * xStride + c)
                  : p.past > 0  ? load(kept + old)
                                : 0.0f;
    }
    for (int64_t last = least(end, p.begin + p.count); t < last; ++t) {
#pragma unroll
      for (int j = 0; j + 1 < taps; ++j)
        window[j] = window[j + 1];
      window[taps - 1] = load(x + t * xStride + c);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < taps; ++j)
        sum += weight[j] * window[j];
      store(y + t * yStride + c, sum * sigmoid(sum));
    }
  }
}

/// The last inputs of every piece into its slot's cache.
template <typename T>
DEVICE void keepInputs(const PieceArgs *pieces, const T *x, int xStride,
                       T *cache, int width) {
  int c = blockX() * threads() + thread();
  if (c >= width)
    return;
  PieceArgs p = pieces[blockY()];
  T *kept = cache + (int64_t(p.slot) * width + c) * taps;
  T next[taps];
#pragma unroll
  for (int j = 0; j < taps; ++j) {
    int64_t at = p.count - taps + j; // row of the piece
    next[j] = at >= 0      ? x[(p.begin + at) * xStride + c]
              : p.past > 0 ? kept[taps + at]
                           : static_cast<T>(0.0f);
  }
#pragma unroll
  for (int j = 0; j < taps; ++j)
    kept[j] = next[j];
}

/// A warp takes a head of a row.
template <typename T>
DEVICE void gatedNorm(const T *x, int xStride, const float *w, float eps,
                      const T *z, int zStride, T *y, int yStride, int heads,
                      int dim) {
  int head = blockY() * (threads() / 32) + warp();
  if (head >= heads)
    return;
  int64_t row = blockX();
  const T *from = x + row * xStride + head * dim;
  const T *gate = z + row * zStride + head * dim;
  T *to = y + row * yStride + head * dim;
  float sum = 0;
  for (int c = lane(); c < dim; c += 32)
    sum += load(from + c) * load(from + c);
  float factor = rsqrt(warpSum(sum) / static_cast<float>(dim) + eps);
  for (int c = lane(); c < dim; c += 32)
    store(to + c, load(from + c) * factor * w[c] * sigmoid(load(gate + c)));
}

#define KDAC_KDA(T, suffix)                                                    \
  KERNEL void conv_##suffix(                                                   \
      const PieceArgs *pieces, int pieceCount, const T *x, int xStride,        \
      const T *w, const T *cache, T *y, int yStride, int width, int rows) {    \
    beginKernel();                                                             \
    shortConv(pieces, pieceCount, x, xStride, w, cache, y, yStride, width,     \
              rows);                                                           \
  }                                                                            \
  KERNEL void keep_##suffix(const PieceArgs *pieces, const T *x, int xStride,  \
                            T *cache, int width) {                             \
    beginKernel();                                                             \
    keepInputs(pieces, x, xStride, cache, width);                              \
  }                                                                            \
  KERNEL void gated_norm_##suffix(const T *x, int xStride, const float *w,     \
                                  float eps, const T *z, int zStride, T *y,    \
                                  int yStride, int heads, int dim) {           \
    beginKernel();                                                             \
    gatedNorm(x, xStride, w, eps, z, zStride, y, yStride, heads, dim);         \
  }
KDAC_KDA(float, f32)
KDAC_KDA(bf16, bf16)

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_KDA_CUH
