// Promises: products of few rows with matrices, as fast as memory gives the
// matrices: a warp takes an output or two of all rows. Twin: HostOps::matmul.
#ifndef KDAC_LIB_MODEL_GPU_PRODUCTS_CUH
#define KDAC_LIB_MODEL_GPU_PRODUCTS_CUH

#include "Cuda.cuh"

namespace kdac::model::gpu {

/// Dot products of `Rows` rows of x with `Outputs` rows of w. Loads of `Ahead`
/// steps are under way at once, the first ones while the kernel before this one
/// still makes x, where `waits`.
template <typename T, int Outputs, int Rows, int Ahead, bool waits>
DEVICE void dots(const T *const (&w)[Outputs], const T *x, int64_t xStride,
                 int in, float (&sum)[Outputs][Rows]) {
  constexpr int step = 32 * 8;
#pragma unroll
  for (int o = 0; o < Outputs; ++o)
#pragma unroll
    for (int r = 0; r < Rows; ++r)
      sum[o][r] = 0;
  for (int base = lane() * 8; base < in; base += step * Ahead) {
    Eight<T> a[Ahead][Outputs];
#pragma unroll
    for (int i = 0; i < Ahead; ++i)
      if (int k = base + i * step; k < in)
#pragma unroll
        for (int o = 0; o < Outputs; ++o)
          a[i][o] = streamEight(w[o] + k);
    if (waits && base == lane() * 8)
      beginKernel();
#pragma unroll
    for (int i = 0; i < Ahead; ++i)
      if (int k = base + i * step; k < in)
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          Eight<T> v = loadEight(x + r * xStride + k);
#pragma unroll
          for (int o = 0; o < Outputs; ++o)
#pragma unroll
            for (int e = 0; e < 8; ++e)
              sum[o][r] += a[i][o][e] * v[e];
        }
  }
#pragma unroll
  for (int o = 0; o < Outputs; ++o)
#pragma unroll
    for (int r = 0; r < Rows; ++r)
      sum[o][r] = warpSum(sum[o][r]);
}

/// A warp takes one output of one row, with everything of a usual row under way
/// at once, or two outputs of several rows.
template <typename T, int Rows>
constexpr int stepsAhead = sizeof(T) == 4 ? 2
                           : Rows == 1    ? 9 // 2304 columns
                           : Rows > 4     ? 2
                                          : 4;
template <typename T, int Rows, int Ahead>
DEVICE void products(const ProductList &list) {
  constexpr int outputs = Rows == 1 ? 1 : 2;
  int i = 0;
  while (i + 1 < list.count && blockX() >= list.item[i + 1].firstBlock)
    ++i;
  const ProductArgs &p = list.item[i];
  int first =
      (blockX() - p.firstBlock) * outputs * productWarps + warp() * outputs;
  if (first >= p.out)
    return;
  bool hasSecond = outputs == 2 && first + 1 < p.out;
  const T *w[outputs];
#pragma unroll
  for (int o = 0; o < outputs; ++o)
    w[o] =
        static_cast<const T *>(p.w) + int64_t(first + (o && hasSecond)) * p.in;
  float sum[outputs][Rows];
  dots<T, outputs, Rows, Ahead, true>(w, static_cast<const T *>(p.x), p.xStride,
                                      p.in, sum);
  if (lane() >= 2 || (lane() == 1 && !hasSecond))
    return;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    float value = lane() ? sum[outputs - 1][r] : sum[0][r];
    int64_t at = int64_t(r) * p.yStride + first + lane();
    if (p.isF32)
      static_cast<float *>(p.y)[at] = value;
    else
      store(static_cast<T *>(p.y) + at, value);
  }
}

/// One product of one long row: a block takes four outputs, a warp a quarter of
/// the columns of two of them, so that a matrix of few outputs gets as many
/// warps as one of many.
DEVICE void longProducts(const ProductArgs &p) {
  SHARED static float parts[productWarps][2];
  constexpr int slices = productWarps * 2 / longOutputs;
  int slice = warp() % slices;
  int first = blockX() * longOutputs + warp() / slices * 2;
  int each = (p.in / 8 + slices - 1) / slices * 8;
  int begin = least(slice * each, p.in), count = least(each, p.in - begin);
  const bf16 *w[2];
#pragma unroll
  for (int o = 0; o < 2; ++o)
    w[o] = static_cast<const bf16 *>(p.w) +
           int64_t(least(first + o, p.out - 1)) * p.in + begin;
  float sum[2][1];
  dots<bf16, 2, 1, 4, true>(w, static_cast<const bf16 *>(p.x) + begin, 0, count,
                            sum);
  if (lane() < 2)
    parts[warp()][lane()] = lane() ? sum[1][0] : sum[0][0];
  barrier();
  int own = thread() / 2, output = blockX() * longOutputs + thread();
  if (thread() >= longOutputs || output >= p.out)
    return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < slices; ++i)
    total += parts[own * slices + i][thread() & 1];
  if (p.isF32)
    static_cast<float *>(p.y)[output] = total;
  else
    store(static_cast<bf16 *>(p.y) + output, total);
}

#define KDAC_PRODUCTS(T, suffix, rows)                                         \
  KERNEL BOUNDS(256, 1) void products##rows##_##suffix(ProductList list) {     \
    products<T, rows, stepsAhead<T, rows>>(list);                              \
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
KERNEL BOUNDS(256, 1) void products_long_bf16(ProductList list) {
  longProducts(list.item[0]);
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_PRODUCTS_CUH
