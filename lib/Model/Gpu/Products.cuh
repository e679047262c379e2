// Promises: products of few rows with matrices, as fast as memory gives the
// matrices: a warp takes two outputs of all rows. Twin: HostOps::matmul.
#ifndef KDAC_LIB_MODEL_GPU_PRODUCTS_CUH
#define KDAC_LIB_MODEL_GPU_PRODUCTS_CUH

#include "Cuda.cuh"

namespace kdac::model::gpu {

constexpr int outputsOfBlock = 16; ///< 8 warps, two each

/// The `Rows` rows' dot products with two rows of w. Loads of several steps are
/// under way at once, the first ones while the kernel before this one still
/// makes x, where `waits`.
template <typename T, int Rows, bool waits = false>
DEVICE void dotTwo(const T *w0, const T *w1, const T *x, int64_t xStride,
                   int in, float (&sum)[2][Rows]) {
  constexpr int step = 32 * 8, ahead = Rows > 4 ? 2 : 4;
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < Rows; ++r)
      sum[i][r] = 0;
  for (int base = lane() * 8; base < in; base += step * ahead) {
    Eight<T> a[ahead], b[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (int k = base + i * step; k < in) {
        a[i] = streamEight(w0 + k);
        b[i] = streamEight(w1 + k);
      }
    if (waits && base == lane() * 8)
      beginKernel();
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (int k = base + i * step; k < in)
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          Eight<T> v = loadEight(x + r * xStride + k);
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            sum[0][r] += a[i][e] * v[e];
            sum[1][r] += b[i][e] * v[e];
          }
        }
  }
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < Rows; ++r)
      sum[i][r] = warpSum(sum[i][r]);
}

template <typename T, int Rows> DEVICE void products(const ProductList &list) {
  int i = 0;
  while (i + 1 < list.count && blockX() >= list.item[i + 1].firstBlock)
    ++i;
  const ProductArgs &p = list.item[i];
  int first = (blockX() - p.firstBlock) * outputsOfBlock + warp() * 2;
  if (first >= p.out)
    return;
  const T *w = static_cast<const T *>(p.w);
  bool hasSecond = first + 1 < p.out;
  const T *w0 = w + int64_t(first) * p.in;
  float sum[2][Rows];
  dotTwo<T, Rows, true>(w0, hasSecond ? w0 + p.in : w0,
                        static_cast<const T *>(p.x), p.xStride, p.in, sum);
  if (lane() >= 2 || (lane() == 1 && !hasSecond))
    return;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    float value = lane() ? sum[1][r] : sum[0][r];
    int64_t at = int64_t(r) * p.yStride + first + lane();
    if (p.isF32)
      static_cast<float *>(p.y)[at] = value;
    else
      store(static_cast<T *>(p.y) + at, value);
  }
}

#define KDAC_PRODUCTS(T, suffix, rows)                                         \
  KERNEL BOUNDS(256, 1) void products##rows##_##suffix(ProductList list) {     \
    products<T, rows>(list);                                                   \
  }
#define KDAC_PRODUCTS_ALL(T, suffix)                                           \
  KDAC_PRODUCTS(T, suffix, 1)                                                  \
  KDAC_PRODUCTS(T, suffix, 2)                                                  \
  KDAC_PRODUCTS(T, suffix, 3)                                                  \
  KDAC_PRODUCTS(T, suffix, 4)                                                  \
  KDAC_PRODUCTS(T, suffix, 5)                                                  \
  KDAC_PRODUCTS(T, suffix, 6)                                                  \
  KDAC_PRODUCTS(T, suffix, 7)                                                  \
  KDAC_PRODUCTS(T, suffix, 8)
KDAC_PRODUCTS_ALL(float, f32)
KDAC_PRODUCTS_ALL(bf16, bf16)

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_PRODUCTS_CUH
