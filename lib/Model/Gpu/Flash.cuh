// Promises: attention of long pieces on expanded keys and values, 192 / 128
// channels, causal behind the piece's past, by mma; keys may come in several
// blocks. Twin: Attention.cuh.
#ifndef KDAC_LIB_MODEL_GPU_FLASH_CUH
#define KDAC_LIB_MODEL_GPU_FLASH_CUH

#include "Attention.cuh"

namespace kdac::model::gpu {

namespace flash {

constexpr int nope = 128, rope = 64, channels = nope + rope, value = 128;
constexpr int rows = 128, keys = 64; ///< of a block, of a step
constexpr int keyPitch = (channels + 8) * 2, valuePitch = (value + 8) * 2;
constexpr int queryBytes = rows * keyPitch;
constexpr int keyBytes = keys * keyPitch;
constexpr int stepBytes = keyBytes + keys * valuePitch;

/// Rows [first, first + keys) of this head's keys and values.
DEVICE void copyStep(const FlashArgs &f, uint32_t to, int first, int head) {
  constexpr int chunks = (channels + value) / 8;
#pragma unroll
  for (int n = 0; n < keys * chunks / 256; ++n) {
    int i = n * 256 + thread(), row = i / chunks, chunk = i % chunks;
    bool exists = first + row < f.keys;
    int64_t key = exists ? first + row : 0;
    const bf16 *expanded = static_cast<const bf16 *>(f.expanded) +
                           (key * f.heads + head) * (nope + value);
    const bf16 *from = chunk < nope / 8 ? expanded + chunk * 8
                       : chunk < channels / 8
                           ? static_cast<const bf16 *>(f.shared) +
                                 key * f.sharedStride + (chunk - nope / 8) * 8
                           : expanded + nope + (chunk - channels / 8) * 8;
    int at = chunk < channels / 8
                 ? row * keyPitch + chunk * 16
                 : keyBytes + row * valuePitch + (chunk - channels / 8) * 16;
    copyAsync(to + static_cast<uint32_t>(at), from, exists);
  }
  commitCopies();
}

/// What a warp knows of its 16 rows: the thread's are lane / 4 and 8 more.
struct Running {
  float sums[16][4];
  float top[2], total[2];
};

DEVICE void restore(const FlashArgs &f, int row, int head, Running &r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int at = row + lane() / 4 + h * 8;
    bool exists = !f.isFirst && at < f.rows;
    int64_t entry = int64_t(at) * f.heads + head;
    r.top[h] = exists ? f.tops[entry * 2] : -__builtin_inff();
    r.total[h] = exists ? f.tops[entry * 2 + 1] : 0.0f;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        r.sums[n][h * 2 + e] =
            exists ? f.sums[entry * value + n * 8 + (lane() & 3) * 2 + e]
                   : 0.0f;
  }
}

DEVICE void finish(const FlashArgs &f, int row, int head, const Running &r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int at = row + lane() / 4 + h * 8;
    if (at >= f.rows)
      continue;
    int64_t entry = int64_t(at) * f.heads + head;
    float factor = 1 / r.total[h];
    bf16 *out = static_cast<bf16 *>(f.out) + int64_t(at) * f.outStride +
                head * value + (lane() & 3) * 2;
    float *sums = f.sums + entry * value + (lane() & 3) * 2;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      float x = r.sums[n][h * 2], y = r.sums[n][h * 2 + 1];
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

/// The step's scores turn into weights; what was summed before is rescaled.
DEVICE void weigh(float (&s)[8][4], Running &r, float scale) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float next = r.top[h];
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        next = greatest(next, s[n][h * 2 + e] * scale);
    for (int mask = 1; mask < 4; mask <<= 1)
      next = greatest(next, shuffleXor(next, mask));
    float factor = exp2(r.top[h] - next), sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        sum += s[n][h * 2 + e] = exp2(s[n][h * 2 + e] * scale - next);
    for (int mask = 1; mask < 4; mask <<= 1)
      sum += shuffleXor(sum, mask);
    r.top[h] = next;
    r.total[h] = r.total[h] * factor + sum;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        r.sums[n][h * 2 + e] *= factor;
  }
}

/// Block (128 rows, head): 8 warps of 16 rows. The last rows, which see the
/// most keys, go first.
DEVICE void run(const FlashArgs &f) {
  extern SHARED char shared[];
  int first = (gridX() - 1 - blockX()) * rows, head = blockY();
  uint32_t query = sharedAddress(shared), steps = query + queryBytes;
  for (int i = thread(); i < rows * (channels / 8); i += 256) {
    int row = i / (channels / 8), chunk = i % (channels / 8);
    bool exists = first + row < f.rows;
    const bf16 *from = static_cast<const bf16 *>(f.q) +
                       int64_t(exists ? first + row : 0) * f.qStride +
                       head * channels + chunk * 8;
    copyAsync(query + static_cast<uint32_t>(row * keyPitch + chunk * 16), from,
              exists);
  }
  // Keys that the last row sees, counted from this block's first.
  int64_t seen = f.past + first + rows - f.firstKey;
  int count = static_cast<int>(least(seen, int64_t(f.keys)));
  int row = first + warp() * 16;
  Running r;
  restore(f, row, head, r);
  copyStep(f, steps, 0, head);
  uint32_t q[channels / 16][4];
  for (int begin = 0; begin < count; begin += keys) {
    uint32_t step = steps + static_cast<uint32_t>(begin / keys & 1) * stepBytes;
    waitCopies<0>();
    barrier();
    if (begin + keys < count)
      copyStep(f, steps + static_cast<uint32_t>(~(begin / keys) & 1) * stepBytes,
               begin + keys, head);
    if (begin == 0)
#pragma unroll
      for (int k = 0; k < channels / 16; ++k)
        loadMatrices(q[k],
                     query + static_cast<uint32_t>(
                                 (warp() * 16 + (lane() & 15)) * keyPitch +
                                 k * 32 + (lane() >> 4) * 16));
    float s[8][4] = {};
    uint32_t keyAt =
        step + static_cast<uint32_t>(
                   ((lane() & 7) + (lane() >> 4) * 8) * keyPitch +
                   (lane() >> 3 & 1) * 16);
#pragma unroll
    for (int k = 0; k < channels / 16; ++k)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t b[4];
        loadMatrices(b, keyAt + static_cast<uint32_t>(n * 16 * keyPitch +
                                                      k * 32));
        multiply(s[2 * n], q[k], b[0], b[1]);
        multiply(s[2 * n + 1], q[k], b[2], b[3]);
      }
    // Row i sees the keys up to its own.
    int64_t own = f.past + row + lane() / 4 - f.firstKey - begin;
    if (begin + keys > f.keys || own - lane() / 4 < keys)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          int key = n * 8 + (lane() & 3) * 2 + (e & 1);
          if (key > own + (e >> 1) * 8 || begin + key >= f.keys)
            s[n][e] = -__builtin_inff();
        }
    weigh(s, r, f.scale);
    uint32_t valueAt =
        step + keyBytes +
        static_cast<uint32_t>((lane() & 15) * valuePitch + (lane() >> 4) * 16);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k) {
      uint32_t a[4] = {
          pack(s[2 * k][0], s[2 * k][1]), pack(s[2 * k][2], s[2 * k][3]),
          pack(s[2 * k + 1][0], s[2 * k + 1][1]),
          pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        uint32_t b[4];
        loadTransposed(b, valueAt + static_cast<uint32_t>(k * 16 * valuePitch +
                                                          n * 32));
        multiply(r.sums[2 * n], a, b[0], b[1]);
        multiply(r.sums[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
  waitCopies<0>();
  finish(f, row, head, r);
}

} // namespace flash

KERNEL BOUNDS(256, 1) void flash_bf16(FlashArgs f) { flash::run(f); }

/// Rows of a slot's latents, tokens [first, first + blocks), side by side.
KERNEL void latents_bf16(const bf16 *pages, const int *table,
                         int64_t pageTokens, int64_t pagesPerSlot, int slot,
                         int64_t first, int width, bf16 *to) {
  const bf16 *from = latentRow<const bf16>(const_cast<bf16 *>(pages), table,
                                           pageTokens, pagesPerSlot, slot,
                                           first + blockX(), width);
  for (int c = thread() * 8; c < width; c += threads() * 8)
    *reinterpret_cast<Quad *>(to + int64_t(blockX()) * width + c) =
        *reinterpret_cast<const Quad *>(from + c);
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_FLASH_CUH
