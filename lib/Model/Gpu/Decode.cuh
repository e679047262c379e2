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

/// What a block computes: pages [first, last) of a piece for a group of heads.
struct Share {
  PieceArgs piece;
  int64_t first, last;
  int64_t partial; ///< of SplitArgs::sums and tops
  int firstHead, heads;
};

/// Whole pages for each split, as even as they go.
DEVICE Share shareOf(const SplitArgs &s) {
  Share own;
  own.piece = s.a.pieces[blockZ()];
  int64_t pages = (own.piece.past + tileKeys) / tileKeys;
  own.first = pages * blockX() / s.splits;
  own.last = pages * (blockX() + 1) / s.splits;
  own.partial = int64_t(blockZ()) * s.splits + blockX();
  own.firstHead = blockY() * s.groupHeads;
  own.heads = least(s.groupHeads, s.a.heads - own.firstHead);
  return own;
}

/// Largest scores and totals of 16 keys each, by the warps that have them.
struct Exchange {
  float tops[4][groupHeads], totals[4][groupHeads];
};

/// What a thread knows of heads row, row + 8, row + 16 and row + 24, row being
/// lane / 4, alike in all warps; and 64 latent columns' sums of its warp.
struct Running {
  LatentSums sums;
  float top[4], total[4];
};

/// The warp's 16 heads (m) and 16 keys (n) of a step.
struct Place {
  int m, n, row;
};

/// Scales the scores of the step's first `seen` keys and tells the other warps
/// the largest.
DEVICE void scaleScores(float (&score)[2][4], int64_t seen, float scale,
                        const Place &at, Exchange &x) {
  float best[2] = {-__builtin_inff(), -__builtin_inff()};
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int key = at.n * 16 + j * 8 + (lane() & 3) * 2 + (i & 1);
      score[j][i] = key < seen ? score[j][i] * scale : -__builtin_inff();
      best[i >> 1] = greatest(best[i >> 1], score[j][i]);
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int mask = 1; mask < 4; mask <<= 1)
      best[h] = greatest(best[h], shuffleXor(best[h], mask));
    if ((lane() & 3) == 0)
      x.tops[at.n][at.m * 16 + at.row + h * 8] = best[h];
  }
}

/// The largest score so far of every head; factor[i] rescales what came before.
DEVICE void raiseTops(const Exchange &x, int row, float (&top)[4],
                      float (&factor)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float next = top[i];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      next = greatest(next, x.tops[j][row + i * 8]);
    factor[i] = exp2(top[i] - next);
    top[i] = next;
  }
}

/// Scores turn into weights [32, 64] in shared memory.
DEVICE void storeWeights(const float (&score)[2][4], const float (&top)[4],
                         const Place &at, char *weights, Exchange &x) {
  float sum[2] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Values, not a choice of places: those would keep all in memory.
      float first = top[h], second = top[2 + h];
      float reference = at.m ? second : first;
      float a = exp2(score[j][2 * h] - reference);
      float b = exp2(score[j][2 * h + 1] - reference);
      sum[h] += a + b;
      int row = at.m * 16 + at.row + h * 8;
      int column = at.n * 16 + j * 8 + (lane() & 3) * 2;
      *reinterpret_cast<uint32_t *>(weights + row * weightPitch + column * 2) =
          pack(a, b);
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int mask = 1; mask < 4; mask <<= 1)
      sum[h] += shuffleXor(sum[h], mask);
    if ((lane() & 3) == 0)
      x.totals[at.n][at.m * 16 + at.row + h * 8] = sum[h];
  }
}

DEVICE void begin(Running &r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    r.top[i] = -__builtin_inff();
    r.total[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        r.sums[i][j][e] = 0;
}

DEVICE void rescale(const Exchange &x, int row, const float (&factor)[4],
                    Running &r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    r.total[i] *= factor[i];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      r.total[i] += x.totals[j][row + i * 8];
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        r.sums[i][j][e] *= factor[2 * i + (e >> 1)];
}

DEVICE void storeSums(const SplitArgs &s, const Share &own, const Running &r) {
  int64_t first = own.partial * s.a.heads + own.firstHead;
  float *tops = s.tops + first * 2;
  float *out = s.sums + first * rank + warp() * 64 + (lane() & 3) * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int head = lane() / 4 + i * 8;
    if (head >= own.heads)
      continue;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        out[head * rank + j * 8 + e] = r.sums[i >> 1][j][(i & 1) * 2 + e];
    if (warp() == 0 && (lane() & 3) == 0) {
      tops[head * 2] = r.top[i];
      tops[head * 2 + 1] = r.total[i];
    }
  }
}

/// A split without pages: combineSplits does not look at its sums.
DEVICE void storeNothing(const SplitArgs &s, const Share &own) {
  float *tops = s.tops + (own.partial * s.a.heads + own.firstHead) * 2;
  if (thread() < own.heads) {
    tops[thread() * 2] = -__builtin_inff();
    tops[thread() * 2 + 1] = 0;
  }
}

/// Block (split, group of heads, piece): 8 warps. For scores a warp takes 16
/// heads and 16 keys, for sums all heads and 64 latent columns. Copies are two
/// steps ahead.
DEVICE void run(const SplitArgs &s) {
  extern SHARED char shared[];
  SHARED static Exchange exchange;
  const AttentionArgs &a = s.a;
  Share own = shareOf(s);
  if (own.piece.count != 1)
    return;
  if (own.first == own.last)
    return storeNothing(s, own);
  uint32_t weights = sharedAddress(shared), keys = weights + weightBytes;
  int64_t seen = own.piece.past + 1; // keys from the first page on
  auto place = [&](int64_t page) {
    return keys + static_cast<uint32_t>((page - own.first) % stages) * keyBytes;
  };
  auto copy = [&](int64_t page) {
    if (page < own.last) {
      int64_t index = a.table[own.piece.slot * a.pagesPerSlot + page];
      copyPage(
          place(page),
          static_cast<const bf16 *>(a.pages) + index * tileKeys * width,
          static_cast<int>(least(int64_t(tileKeys), seen - page * tileKeys)));
    }
    commitCopies();
  };
  // The last place is not needed before the first step.
  uint32_t lastPlace = place(own.first + stages - 1);
  copyQueries(lastPlace,
              static_cast<const bf16 *>(s.query) +
                  (int64_t(blockZ()) * a.heads + own.firstHead) * width,
              own.heads);
  copy(own.first);
  copy(own.first + 1);
  Place at = {warp() & 1, warp() >> 1, lane() / 4};
  waitCopies<2>();
  barrier();
  Queries queries;
#pragma unroll
  for (int k = 0; k < width / 16; ++k)
    loadMatrices(queries[k],
                 lastPlace + static_cast<uint32_t>(
                                 (at.m * 16 + (lane() & 15)) * rowPitch +
                                 k * 32 + (lane() >> 4) * 16));
  auto keyAt = static_cast<uint32_t>(
      (at.n * 16 + (lane() & 7) + (lane() >> 4) * 8) * rowPitch +
      (lane() >> 3 & 1) * 16);
  auto weightAt =
      static_cast<uint32_t>((lane() & 15) * weightPitch + (lane() >> 4) * 16);
  auto latentAt = static_cast<uint32_t>((lane() & 15) * rowPitch +
                                        warp() * 128 + (lane() >> 4) * 16);
  Running r;
  begin(r);
  for (int64_t page = own.first; page < own.last; ++page) {
    waitCopies<1>();
    barrier();
    // Everyone is done with the page before, whose place this is.
    copy(page + 2);
    float score[2][4] = {}, factor[4];
    scoreKeys(queries, place(page) + keyAt, score);
    scaleScores(score, seen - page * tileKeys, a.scale, at, exchange);
    barrier();
    raiseTops(exchange, at.row, r.top, factor);
    storeWeights(score, r.top, at, shared, exchange);
    barrier();
    rescale(exchange, at.row, factor, r);
    addLatents(weights + weightAt, place(page) + latentAt, r.sums);
  }
  storeSums(s, own, r);
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
