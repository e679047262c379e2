// Promises: attention of long pieces on expanded keys and values, 192 / 128
// channels, causal behind the piece's past, by wgmma; keys may come in several
// blocks. Twin: Attention.cuh.
#ifndef KDAC_LIB_MODEL_GPU_FLASH_CUH
#define KDAC_LIB_MODEL_GPU_FLASH_CUH

#include "Attention.cuh"
#include "Gemm.cuh"

namespace kdac::model::gpu {

namespace flash {

constexpr int nope = 128, rope = 64, channels = nope + rope, value = 128;
constexpr int rows = 128, keys = 128; ///< of a block, of a step
// Panels of 64 columns, 128 bytes a row, swizzled (Gemm.cuh).
constexpr int rowsPanel = rows * 128, keysPanel = keys * 128;
constexpr int queryBytes = channels / 64 * rowsPanel;
constexpr int keyBytes = channels / 64 * keysPanel;
constexpr int valueBytes = value / 64 * keysPanel;

struct Tiles {
  uint32_t query, keys, values; ///< two of keys and values each
  DEVICE_MEMBER uint32_t keysOf(int step) const {
    return keys + static_cast<uint32_t>(step & 1) * keyBytes;
  }
  DEVICE_MEMBER uint32_t valuesOf(int step) const {
    return values + static_cast<uint32_t>(step & 1) * valueBytes;
  }
};

/// A panel: 64 columns of the first `count` of 128 rows, zeros below them.
DEVICE void copyPanel(uint32_t to, const bf16 *from, int64_t stride,
                      int count) {
  int row = thread() >> 3, chunk = thread() & 7;
  from += chunk * 8;
  to += swizzled(row, chunk);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bool exists = row + 32 * i < count;
    copyAsync(to + static_cast<uint32_t>(i) * 32 * 128,
              from + (exists ? (row + 32 * i) * stride : 0), exists);
  }
}

DEVICE void copyQuery(const FlashArgs &f, const Tiles &t, int first, int head) {
  const bf16 *from = static_cast<const bf16 *>(f.q) +
                     int64_t(first) * f.qStride + head * channels;
#pragma unroll
  for (int p = 0; p < channels / 64; ++p)
    copyPanel(t.query + static_cast<uint32_t>(p) * rowsPanel, from + p * 64,
              f.qStride, f.rows - first);
}

DEVICE const bf16 *expandedRow(const FlashArgs &f, int step, int head) {
  return static_cast<const bf16 *>(f.expanded) +
         (int64_t(step) * keys * f.heads + head) * (nope + value);
}

DEVICE void copyKeys(const FlashArgs &f, const Tiles &t, int step, int head) {
  int64_t stride = int64_t(f.heads) * (nope + value);
  const bf16 *from = expandedRow(f, step, head);
  uint32_t to = t.keysOf(step);
  int count = f.keys - step * keys;
  copyPanel(to, from, stride, count);
  copyPanel(to + keysPanel, from + 64, stride, count);
  copyPanel(to + 2 * keysPanel,
            static_cast<const bf16 *>(f.shared) +
                int64_t(step) * keys * f.sharedStride,
            f.sharedStride, count);
}

DEVICE void copyValues(const FlashArgs &f, const Tiles &t, int step, int head) {
  int64_t stride = int64_t(f.heads) * (nope + value);
  const bf16 *from = expandedRow(f, step, head) + nope;
  int count = f.keys - step * keys;
  copyPanel(t.valuesOf(step), from, stride, count);
  copyPanel(t.valuesOf(step) + keysPanel, from + 64, stride, count);
}

/// What a warpgroup knows of its 64 rows: the thread's are `row` and row + 8.
struct Running {
  Sums sums;
  float top[2], total[2];
};

DEVICE void restore(const FlashArgs &f, int row, int head, Running &r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int at = row + h * 8;
    bool exists = !f.isFirst && at < f.rows;
    int64_t entry = int64_t(at) * f.heads + head;
    r.top[h] = exists ? f.tops[entry * 2] : -__builtin_inff();
    r.total[h] = exists ? f.tops[entry * 2 + 1] : 0.0f;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        r.sums.v[n * 4 + h * 2 + e] =
            exists ? f.sums[entry * value + n * 8 + (lane() & 3) * 2 + e]
                   : 0.0f;
  }
}

DEVICE void finish(const FlashArgs &f, int row, int head, const Running &r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int at = row + h * 8;
    if (at >= f.rows)
      continue;
    int64_t entry = int64_t(at) * f.heads + head;
    float factor = 1 / r.total[h];
    bf16 *out = static_cast<bf16 *>(f.out) + int64_t(at) * f.outStride +
                head * value + (lane() & 3) * 2;
    float *sums = f.sums + entry * value + (lane() & 3) * 2;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      float x = r.sums.v[n * 4 + h * 2], y = r.sums.v[n * 4 + h * 2 + 1];
      if (f.isLast) {
        *reinterpret_cast<uint32_t *>(out + n * 8) =
            pack(x * factor, y * factor);
      } else {
        sums[n * 8] = x;
        sums[n * 8 + 1] = y;
      }
    }
    if (!f.isLast && (lane() & 3) == 0) {
      f.tops[entry * 2] = r.top[h];
      f.tops[entry * 2 + 1] = r.total[h];
    }
  }
}

/// scores = queries keysᵀ, under way.
DEVICE void score(const Tiles &t, int step, Sums &s) {
  uint32_t q = t.query + static_cast<uint32_t>(warp() / 4) * 64 * 128;
  fence(s);
#pragma unroll
  for (uint32_t k = 0; k < channels / 16; ++k) {
    uint64_t a = descriptor(q + k / 4 * rowsPanel + k % 4 * 32);
    uint64_t b = descriptor(t.keysOf(step) + k / 4 * keysPanel + k % 4 * 32);
    if (k == 0)
      multiply<0>(s, a, b);
    else
      multiply(s, a, b);
  }
  commitProducts(s);
}

using Weights = uint32_t[keys / 16][4];

/// sums += weights values, under way.
DEVICE void addValues(const Tiles &t, int step, const Weights &w, Sums &s) {
  fence(s);
#pragma unroll
  for (uint32_t k = 0; k < keys / 16; ++k)
    multiply(s, w[k],
             crossDescriptor(t.valuesOf(step) + k * 16 * 128, keysPanel));
  commitProducts(s);
}

/// Row `row` sees the keys up to its own, and only keys that exist.
DEVICE void mask(const FlashArgs &f, int row, int step, Sums &s) {
  int64_t own = f.past + row - f.firstKey - step * keys;
  int exist = f.keys - step * keys;
  if (own - lane() / 4 >= keys && exist >= keys)
    return;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    int key = i / 4 * 8 + (lane() & 3) * 2 + (i & 1);
    if (key > own + (i >> 1 & 1) * 8 || key >= exist)
      s.v[i] = -__builtin_inff();
  }
}

/// Scores turn into weights, in pairs as products read them; `factor` rescales
/// what was summed before.
DEVICE void weigh(Sums &s, float scale, Running &r, Weights &w,
                  float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float best = -__builtin_inff();
#pragma unroll
    for (int n = 0; n < 16; ++n)
      best =
          greatest(best, greatest(s.v[n * 4 + h * 2], s.v[n * 4 + h * 2 + 1]));
#pragma unroll
    for (int m = 1; m < 4; m <<= 1)
      best = greatest(best, shuffleXor(best, m));
    float next = greatest(r.top[h], best * scale), sum = 0;
    factor[h] = exp2(r.top[h] - next);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      float x = exp2(s.v[n * 4 + h * 2] * scale - next);
      float y = exp2(s.v[n * 4 + h * 2 + 1] * scale - next);
      sum += x + y;
      w[n / 2][n % 2 * 2 + h] = pack(x, y);
    }
    // Of this thread's columns; finished at the end.
    r.total[h] = r.total[h] * factor[h] + sum;
    r.top[h] = next;
  }
}

DEVICE void rescale(Sums &s, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    s.v[i] *= factor[i >> 1 & 1];
}

/// Block (128 rows, head): two warpgroups of 64 rows. The scores of the next
/// step are computed before the weights of this one meet their values, so that
/// softmax and products run side by side. The last rows, which see the most
/// keys, go first.
DEVICE void run(const FlashArgs &f) {
  extern SHARED char shared[];
  int first = (gridX() - 1 - blockX()) * rows, head = blockY();
  Tiles t;
  t.query = (sharedAddress(shared) + 1023) & ~1023u;
  t.keys = t.query + queryBytes;
  t.values = t.keys + 2 * keyBytes;
  // Keys that the last row sees, counted from this block's first.
  int64_t seen = f.past + first + rows - f.firstKey;
  int count = static_cast<int>(least(seen, int64_t(f.keys)));
  int steps = count > 0 ? (count + keys - 1) / keys : 0;
  int row = first + warp() * 16 + lane() / 4;
  copyQuery(f, t, first, head);
  copyKeys(f, t, 0, head);
  commitCopies();
  copyValues(f, t, 0, head);
  if (steps > 1)
    copyKeys(f, t, 1, head);
  commitCopies();
  Running r;
  restore(f, row, head, r);
  if ((lane() & 3) != 0) // the thread's share of what was summed before
    r.total[0] = r.total[1] = 0;
  Sums s;
  Weights w;
  float factor[2];
  waitCopies<1>();
  fenceProxy();
  barrier();
  if (steps > 0) { // else these keys are all behind the rows
    score(t, 0, s);
    await<0>(s);
    mask(f, row, 0, s);
    weigh(s, f.scale, r, w, factor);
  }
  auto meet = [&](int step) {
    rescale(r.sums, factor);
    waitCopies<0>();
    fenceProxy();
    barrier();
    // Everyone is done with the keys and values of the step before.
    if (step + 2 < steps)
      copyKeys(f, t, step + 2, head);
    if (step + 1 < steps)
      copyValues(f, t, step + 1, head);
    commitCopies();
  };
  for (int step = 0; step + 1 < steps; ++step) {
    meet(step);
    score(t, step + 1, s);
    addValues(t, step, w, r.sums);
    await<1>(s);
    mask(f, row, step + 1, s);
    Weights next;
    weigh(s, f.scale, r, next, factor);
    await<0>(r.sums);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k) {
      hold(w[k]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[k][i] = next[k][i];
    }
  }
  if (steps > 0) {
    meet(steps - 1);
    addValues(t, steps - 1, w, r.sums);
    await<0>(r.sums);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k)
      hold(w[k]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int m = 1; m < 4; m <<= 1)
      r.total[h] += shuffleXor(r.total[h], m);
  finish(f, row, head, r);
}

} // namespace flash

KERNEL BOUNDS(256, 1) void flash_bf16(FlashArgs f) {
  beginKernel();
  flash::run(f);
}

/// Rows of a slot's latents, tokens [first, first + blocks), side by side.
KERNEL void latents_bf16(const bf16 *pages, const int *table,
                         int64_t pageTokens, int64_t pagesPerSlot, int slot,
                         int64_t first, int width, bf16 *to) {
  beginKernel();
  const bf16 *from =
      latentRow<const bf16>(const_cast<bf16 *>(pages), table, pageTokens,
                            pagesPerSlot, slot, first + blockX(), width);
  for (int c = thread() * 8; c < width; c += threads() * 8)
    *reinterpret_cast<Quad *>(to + int64_t(blockX()) * width + c) =
        *reinterpret_cast<const Quad *>(from + c);
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_FLASH_CUH
