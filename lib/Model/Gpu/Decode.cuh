// Promises: absorbed attention of single tokens over long latent caches, its
// keys shared out between blocks: queries into the latent space, partial sums
// by mma, their combination and the way out. For rank 512, rope 64 and nope
// 128, bf16. Twin: Attention.cuh.
#ifndef KDAC_LIB_MODEL_GPU_DECODE_CUH
#define KDAC_LIB_MODEL_GPU_DECODE_CUH

#include "Attention.cuh"

namespace kdac::model::gpu {

constexpr int rank = 512, width = 576; ///< of a cached row
constexpr int nope = 128, value = 128; ///< of a head

/// query [piece, head] = [W_UKᵀ q_nope | q_rope]: a block takes a quarter of
/// the latent columns of a head. 128 threads.
DEVICE void absorb(const SplitArgs &s) {
  SHARED static float parts[8][128];
  const AttentionArgs &a = s.a;
  PieceArgs p = a.pieces[blockZ()];
  if (p.count != 1)
    return;
  int head = blockY(), column = blockX() * 128 + (thread() & 15) * 8;
  constexpr int each = nope / 8;
  int part = thread() >> 4;
  const bf16 *q = static_cast<const bf16 *>(a.q) + p.begin * a.qStride +
                  head * (a.nope + a.rope);
  const bf16 *up = static_cast<const bf16 *>(a.kvB) +
                   int64_t(head) * (a.nope + a.value) * rank + column;
  float sum[8] = {};
#pragma unroll
  for (int i = 0; i < each; ++i) {
    int d = part * each + i;
    Eight<bf16> line = streamEight(up + int64_t(d) * rank);
    float x = load(q + d);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sum[i] += x * line[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    parts[part][(thread() & 15) * 8 + i] = sum[i];
  barrier();
  bf16 *to = static_cast<bf16 *>(s.query) +
             (int64_t(blockZ()) * a.heads + head) * width;
  float x = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    x += parts[i][thread()];
  store(to + blockX() * 128 + thread(), x);
  if (blockX() == 0 && thread() < a.rope)
    to[rank + thread()] = q[a.nope + thread()];
}

namespace split {

constexpr int groupHeads = 32, tileKeys = 64; ///< of a block, of a step
constexpr int stages = 3;
// Rows in shared memory end 16 bytes later, so that eight of them are in
// different banks.
constexpr int rowPitch = (width + 8) * 2, weightPitch = (tileKeys + 8) * 2;
constexpr int keyBytes = tileKeys * rowPitch;
constexpr int weightBytes = groupHeads * weightPitch;

/// A tile is a page: copies its rows below `rows`, zeros behind them.
DEVICE void copyPage(uint32_t to, const bf16 *page, int rows) {
  for (int i = thread(); i < tileKeys * (width / 8); i += 256) {
    int row = i / (width / 8), chunk = i % (width / 8);
    copyAsync(to + static_cast<uint32_t>(row * rowPitch + chunk * 16),
              page + row * width + chunk * 8, row < rows);
  }
}

/// Sums of one thread: 2 x 16 heads, 8 groups of 8 latent columns.
using LatentSums = float[2][8][4];

/// A warp's 16 queries as products read them: they stay in registers.
using Queries = uint32_t[width / 16][4];

/// scores of 16 heads and 16 keys: 36 steps of 16 columns.
DEVICE void scoreKeys(const Queries &q, uint32_t keys, float (&s)[2][4]) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    uint32_t b[4];
    loadMatrices(b, keys + static_cast<uint32_t>(k * 32));
    multiply(s[0], q[k], b[0], b[1]);
    multiply(s[1], q[k], b[2], b[3]);
  }
}

/// sums += weights [32, 64] latents [64, 64 columns of this warp].
DEVICE void addLatents(uint32_t weights, uint32_t latents, LatentSums &sums) {
#pragma unroll
  for (int k = 0; k < tileKeys / 16; ++k) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      loadMatrices(
          a[m], weights + static_cast<uint32_t>(m * 16 * weightPitch + k * 32));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      loadTransposed(b, latents +
                            static_cast<uint32_t>(k * 16 * rowPitch + n * 32));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply(sums[m][2 * n], a[m], b[0], b[1]);
        multiply(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Query heads, as rows of keys are; zeros behind the last one.
DEVICE void copyQueries(uint32_t to, const bf16 *q, int heads) {
  for (int i = thread(); i < groupHeads * (width / 8); i += 256) {
    int row = i / (width / 8), chunk = i % (width / 8);
    bool exists = row < heads;
    copyAsync(to + static_cast<uint32_t>(row * rowPitch + chunk * 16),
              q + (exists ? row * width : 0) + chunk * 8, exists);
  }
  commitCopies();
}

/// Block (split, group of heads, piece): 8 warps. For scores a warp takes 16
/// heads and 16 keys, for sums all heads and 64 latent columns. Copies are two
/// steps ahead.
DEVICE void run(const SplitArgs &s) {
  extern SHARED char shared[];
  SHARED static float tops[4][groupHeads], totals[4][groupHeads];
  const AttentionArgs &a = s.a;
  PieceArgs p = a.pieces[blockZ()];
  if (p.count != 1)
    return;
  // Whole pages for each split, as even as they go.
  int64_t pages = (p.past + tileKeys) / tileKeys;
  int64_t first = pages * blockX() / s.splits;
  int64_t last = pages * (blockX() + 1) / s.splits;
  int64_t partial = int64_t(blockZ()) * s.splits + blockX();
  int firstHead = blockY() * s.groupHeads;
  int heads = least(s.groupHeads, a.heads - firstHead);
  float *topsOut = s.tops + (partial * a.heads + firstHead) * 2;
  if (first == last) {
    if (thread() < heads) {
      topsOut[thread() * 2] = -__builtin_inff();
      topsOut[thread() * 2 + 1] = 0;
    }
    return;
  }
  uint32_t weights = sharedAddress(shared), keys = weights + weightBytes;
  const bf16 *q = static_cast<const bf16 *>(s.query) +
                  (int64_t(blockZ()) * a.heads + firstHead) * width;
  auto place = [&](int64_t page) {
    return keys + static_cast<uint32_t>((page - first) % stages) * keyBytes;
  };
  auto copy = [&](int64_t page) {
    if (page < last) {
      int64_t index = a.table[p.slot * a.pagesPerSlot + page];
      int64_t rows = least(int64_t(tileKeys), p.past + 1 - page * tileKeys);
      copyPage(place(page),
               static_cast<const bf16 *>(a.pages) + index * tileKeys * width,
               static_cast<int>(rows));
    }
    commitCopies();
  };
  // The last place is not needed before the first step.
  uint32_t lastPlace = place(first + stages - 1);
  copyQueries(lastPlace, q, heads);
  copy(first);
  copy(first + 1);
  int m = warp() & 1, n = warp() >> 1, row = lane() / 4;
  waitCopies<2>();
  barrier();
  Queries queries;
#pragma unroll
  for (int k = 0; k < width / 16; ++k)
    loadMatrices(queries[k],
                 lastPlace +
                     static_cast<uint32_t>((m * 16 + (lane() & 15)) * rowPitch +
                                           k * 32 + (lane() >> 4) * 16));
  uint32_t keyAt = static_cast<uint32_t>(
      (n * 16 + (lane() & 7) + (lane() >> 4) * 8) * rowPitch +
      (lane() >> 3 & 1) * 16);
  uint32_t weightAt =
      weights +
      static_cast<uint32_t>((lane() & 15) * weightPitch + (lane() >> 4) * 16);
  uint32_t latentAt = static_cast<uint32_t>((lane() & 15) * rowPitch +
                                            warp() * 128 + (lane() >> 4) * 16);
  LatentSums sums = {};
  // Of heads row, row + 8, row + 16, row + 24, alike in all warps.
  float top[4], total[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    top[i] = -__builtin_inff();
    total[i] = 0;
  }
  for (int64_t page = first; page < last; ++page) {
    uint32_t tile = place(page);
    waitCopies<1>();
    barrier();
    // Everyone is done with the page before, whose place this is.
    copy(page + 2);
    float score[2][4] = {};
    scoreKeys(queries, tile + keyAt, score);
    int64_t seen = p.past + 1 - page * tileKeys; // keys of this page
    float best[2] = {-__builtin_inff(), -__builtin_inff()};
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int key = n * 16 + j * 8 + (lane() & 3) * 2 + (i & 1);
        score[j][i] = key < seen ? score[j][i] * a.scale : -__builtin_inff();
        best[i >> 1] = greatest(best[i >> 1], score[j][i]);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int mask = 1; mask < 4; mask <<= 1)
        best[h] = greatest(best[h], shuffleXor(best[h], mask));
      if ((lane() & 3) == 0)
        tops[n][m * 16 + row + h * 8] = best[h];
    }
    barrier();
    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float next = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        next = greatest(next, tops[j][row + i * 8]);
      factor[i] = exp2(top[i] - next);
      top[i] = next;
    }
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float reference = m ? top[2 + h] : top[h];
        float x = exp2(score[j][2 * h] - reference);
        float y = exp2(score[j][2 * h + 1] - reference);
        sum[h] += x + y;
        uint32_t at =
            static_cast<uint32_t>((m * 16 + row + h * 8) * weightPitch +
                                  (n * 16 + j * 8 + (lane() & 3) * 2) * 2);
        *reinterpret_cast<uint32_t *>(shared + at) = pack(x, y);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int mask = 1; mask < 4; mask <<= 1)
        sum[h] += shuffleXor(sum[h], mask);
      if ((lane() & 3) == 0)
        totals[n][m * 16 + row + h * 8] = sum[h];
    }
    barrier();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      total[i] *= factor[i];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        total[i] += totals[j][row + i * 8];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[i][j][e] *= factor[2 * i + (e >> 1)];
    addLatents(weightAt, tile + latentAt, sums);
  }
  float *out = s.sums + (partial * a.heads + firstHead) * rank + warp() * 64 +
               (lane() & 3) * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int head = row + i * 8;
    if (head >= heads)
      continue;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        out[head * rank + j * 8 + e] = sums[i >> 1][j][(i & 1) * 2 + e];
    if (warp() == 0 && (lane() & 3) == 0) {
      topsOut[head * 2] = top[i];
      topsOut[head * 2 + 1] = total[i];
    }
  }
}

} // namespace split

/// Block (head, piece) of 512 threads: the splits' sums into one latent row,
/// then W_UV of it.
DEVICE void combineSplits(const SplitArgs &s) {
  SHARED static float factors[512], latent[rank];
  const AttentionArgs &a = s.a;
  PieceArgs p = a.pieces[blockY()];
  if (p.count != 1)
    return;
  int head = blockX();
  int64_t base = int64_t(blockY()) * s.splits;
  auto entry = [&](int split) { return (base + split) * a.heads + head; };
  // Every warp for itself: loads of all splits are under way at once.
  float top = -__builtin_inff(), total = 0, x = 0;
  for (int i = lane(); i < s.splits; i += 32)
    top = greatest(top, s.tops[entry(i) * 2]);
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1)
    top = greatest(top, shuffleXor(top, mask));
  for (int i = lane(); i < s.splits; i += 32) {
    float factor = exp2(s.tops[entry(i) * 2] - top);
    total += factor * s.tops[entry(i) * 2 + 1];
    if (warp() == 0)
      factors[i] = factor;
  }
  total = warpSum(total);
  barrier();
#pragma unroll 8
  for (int i = 0; i < s.splits; ++i) {
    float factor = factors[i];
    if (factor > 0)
      x += factor * s.sums[entry(i) * rank + thread()];
  }
  latent[thread()] = x / total;
  barrier();
  const bf16 *up = static_cast<const bf16 *>(a.kvB) +
                   (int64_t(head) * (a.nope + a.value) + a.nope) * rank;
  bf16 *out =
      static_cast<bf16 *>(a.out) + p.begin * a.outStride + head * a.value;
  constexpr int each = value / 16; // values of a warp
  float sum[each] = {};
#pragma unroll
  for (int n = 0; n < each; ++n)
#pragma unroll
    for (int k = 0; k < rank; k += 256) {
      int column = k + lane() * 8;
      Eight<bf16> line =
          streamEight(up + int64_t(warp() * each + n) * rank + column);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        sum[n] += line[i] * latent[column + i];
    }
#pragma unroll
  for (int n = 0; n < each; ++n) {
    float x = warpSum(sum[n]);
    if (lane() == 0)
      store(out + warp() * each + n, x);
  }
}

KERNEL BOUNDS(128, 1) void absorb_bf16(SplitArgs s) {
  beginKernel();
  absorb(s);
}
KERNEL BOUNDS(256, 1) void attend_split_bf16(SplitArgs s) {
  beginKernel();
  split::run(s);
}
KERNEL BOUNDS(512, 1) void combine_splits_bf16(SplitArgs s) {
  beginKernel();
  combineSplits(s);
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_DECODE_CUH
