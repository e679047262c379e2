// Promises: absorbed attention of single tokens over long latent caches, its
// keys shared out between blocks: queries into the latent space, partial sums
// by mma, their combination and the way out. For rank 512, rope 64 and nope
// 128, bf16. Twin: Attention.cuh.
#ifndef KDAC_LIB_MODEL_GPU_DECODE_CUH
#define KDAC_LIB_MODEL_GPU_DECODE_CUH

#include "Attention.cuh"
#include "Gemm.cuh"

namespace kdac::model::gpu {

constexpr int rank = 512, width = 576, nope = 128; ///< of a cached row, a query

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

// Panels of 64 columns, 128 bytes a row, swizzled (Gemm.cuh).
constexpr int heads = 64, keys = 32; ///< of a block, of a step
constexpr int headsPanel = heads * 128, keysPanel = keys * 128;
constexpr int panels = width / 64;
constexpr int queryBytes = panels * headsPanel, stepBytes = panels * keysPanel;
constexpr int steps = 4; ///< in shared memory

/// Scores of one thread: 4 groups of 8 keys, two of head lane / 4 and two of
/// head lane / 4 + 8.
struct Scores {
  float v[16];
};
#define KDAC_SCORES(s)                                                         \
  "+f"(s.v[0]), "+f"(s.v[1]), "+f"(s.v[2]), "+f"(s.v[3]), "+f"(s.v[4]),        \
      "+f"(s.v[5]), "+f"(s.v[6]), "+f"(s.v[7]), "+f"(s.v[8]), "+f"(s.v[9]),    \
      "+f"(s.v[10]), "+f"(s.v[11]), "+f"(s.v[12]), "+f"(s.v[13]),              \
      "+f"(s.v[14]), "+f"(s.v[15])

template <int adds> DEVICE void multiply(Scores &s, uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, "
               "%8, %9, %10, %11, %12, %13, %14, %15}, "
               "%16, %17, %18, 1, 1, 0, 0;"
               : KDAC_SCORES(s)
               : "l"(a), "l"(b), "n"(adds)
               : "memory");
}

DEVICE void fenceScores(Scores &s) {
  asm volatile("wgmma.fence.sync.aligned;" : KDAC_SCORES(s)::"memory");
}

DEVICE void awaitScores(Scores &s) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : KDAC_SCORES(s)::"memory");
}

/// Rows below `count` of a step, zeros behind them: a thread takes a row's 16
/// bytes of every panel.
DEVICE void copyStep(uint32_t to, const bf16 *from, int count) {
  int row = thread() >> 3, chunk = thread() & 7;
  bool exists = row < count;
  from += (exists ? row : 0) * width + chunk * 8;
  to += swizzled(row, chunk);
#pragma unroll
  for (int p = 0; p < panels; ++p)
    copyAsync(to + static_cast<uint32_t>(p) * keysPanel, from + p * 64, exists);
}

DEVICE void copyQueries(uint32_t to, const bf16 *from, int count) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int row = (thread() >> 3) + 32 * i, chunk = thread() & 7;
    bool exists = row < count;
    const bf16 *line = from + (exists ? row : 0) * width + chunk * 8;
#pragma unroll
    for (int p = 0; p < panels; ++p)
      copyAsync(to + static_cast<uint32_t>(p) * headsPanel +
                    swizzled(row, chunk),
                line + p * 64, exists);
  }
}

/// scores = queries keysᵀ of a step, under way.
DEVICE void score(uint32_t query, uint32_t step, Scores &s) {
  fenceScores(s);
#pragma unroll
  for (uint32_t k = 0; k < width / 16; ++k) {
    uint64_t a = descriptor(query + k / 4 * headsPanel + k % 4 * 32);
    uint64_t b = descriptor(step + k / 4 * keysPanel + k % 4 * 32);
    if (k == 0)
      multiply<0>(s, a, b);
    else
      multiply<1>(s, a, b);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" : KDAC_SCORES(s)::"memory");
}

/// What a warpgroup knows of all heads: 256 latent columns of their sums. The
/// thread's heads are lane / 4 and 8 more of its warp's 16.
struct Running {
  Sums low, high;
  float top[2], total[2];
};
using Weights = uint32_t[keys / 16][4];

/// sums += weights latents of a step, under way.
DEVICE void addLatents(uint32_t step, const Weights &w, Running &r) {
  uint32_t own = step + static_cast<uint32_t>(warp() / 4) * 4 * keysPanel;
  fence(r.low);
  fence(r.high);
#pragma unroll
  for (uint32_t k = 0; k < keys / 16; ++k) {
    uint32_t at = own + k * 16 * 128;
    kdac::model::gpu::multiply(r.low, w[k], crossDescriptor(at, keysPanel));
    kdac::model::gpu::multiply(r.high, w[k],
                               crossDescriptor(at + 2 * keysPanel, keysPanel));
  }
  commitProducts(r.low);
}

/// Scores of the first `seen` keys turn into weights; sums are rescaled.
DEVICE void weigh(Scores &s, int seen, float scale, Running &r, Weights &w) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float next = r.top[h], sum = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float &x = s.v[n * 4 + h * 2 + e];
        bool exists = n * 8 + (lane() & 3) * 2 + e < seen;
        x = exists ? x * scale : -__builtin_inff();
        next = greatest(next, x);
      }
#pragma unroll
    for (int m = 1; m < 4; m <<= 1)
      next = greatest(next, shuffleXor(next, m));
    float factor = exp2(r.top[h] - next);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float x = exp2(s.v[n * 4 + h * 2] - next);
      float y = exp2(s.v[n * 4 + h * 2 + 1] - next);
      sum += x + y;
      w[n / 2][n % 2 * 2 + h] = pack(x, y);
    }
    // Of this thread's keys; put together at the end.
    r.total[h] = r.total[h] * factor + sum;
    r.top[h] = next;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        r.low.v[n * 4 + h * 2 + e] *= factor;
        r.high.v[n * 4 + h * 2 + e] *= factor;
      }
  }
}

DEVICE void storeSums(const SplitArgs &s, int64_t partial, int firstHead,
                      int count, const Running &r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int head = (warp() & 3) * 16 + lane() / 4 + h * 8;
    if (head >= count)
      continue;
    int64_t entry = partial * s.a.heads + firstHead + head;
    float *out = s.sums + entry * rank + warp() / 4 * 256 + (lane() & 3) * 2;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        out[n * 8 + e] = r.low.v[n * 4 + h * 2 + e];
        out[128 + n * 8 + e] = r.high.v[n * 4 + h * 2 + e];
      }
    if (warp() < 4 && (lane() & 3) == 0) {
      s.tops[entry * 2] = r.top[h];
      s.tops[entry * 2 + 1] = r.total[h];
    }
  }
}

/// Block (split, group of heads, piece): two warpgroups, which score all heads
/// each, and sum half of the latent columns each, so that they need nothing of
/// one another. Copies are three steps ahead.
DEVICE void run(const SplitArgs &s) {
  extern SHARED char shared[];
  const AttentionArgs &a = s.a;
  PieceArgs p = a.pieces[blockZ()];
  if (p.count != 1)
    return;
  // Whole steps for each split, as even as they go.
  int64_t all = (p.past + keys) / keys;
  int64_t first = all * blockX() / s.splits;
  int count = static_cast<int>(all * (blockX() + 1) / s.splits - first);
  int64_t partial = int64_t(blockZ()) * s.splits + blockX();
  int firstHead = blockY() * s.groupHeads;
  int own = least(s.groupHeads, a.heads - firstHead);
  if (count == 0) {
    float *tops = s.tops + (partial * a.heads + firstHead) * 2;
    if (thread() < own) {
      tops[thread() * 2] = -__builtin_inff();
      tops[thread() * 2 + 1] = 0;
    }
    return;
  }
  uint32_t query = (sharedAddress(shared) + 1023) & ~1023u;
  uint32_t tiles = query + queryBytes;
  auto place = [&](int step) {
    return tiles + static_cast<uint32_t>(step % steps) * stepBytes;
  };
  auto copy = [&](int step) {
    if (step < count) {
      int64_t token = (first + step) * keys;
      const bf16 *from = latentRow<const bf16>(
          const_cast<void *>(a.pages), a.table, a.pageTokens, a.pagesPerSlot,
          p.slot, token, width);
      copyStep(place(step), from,
               static_cast<int>(least(int64_t(keys), p.past + 1 - token)));
    }
    commitCopies();
  };
  copyQueries(query,
              static_cast<const bf16 *>(s.query) +
                  (int64_t(blockZ()) * a.heads + firstHead) * width,
              own);
  for (int step = 0; step < steps - 1; ++step)
    copy(step);
  Running r;
#pragma unroll
  for (int i = 0; i < 64; ++i)
    r.low.v[i] = r.high.v[i] = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    r.top[h] = -__builtin_inff();
    r.total[h] = 0;
  }
  for (int step = 0; step < count; ++step) {
    waitCopies<steps - 2>();
    fenceProxy();
    barrier();
    // Everyone is done with the step before, whose place this is.
    copy(step + steps - 1);
    Scores scores;
    Weights w;
    score(query, place(step), scores);
    awaitScores(scores);
    int64_t seen = p.past + 1 - (first + step) * keys;
    weigh(scores, static_cast<int>(least(seen, int64_t(keys))), a.scale, r, w);
    addLatents(place(step), w, r);
    await<0>(r.low);
    await<0>(r.high);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k)
      hold(w[k]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int m = 1; m < 4; m <<= 1)
      r.total[h] += shuffleXor(r.total[h], m);
  storeSums(s, partial, firstHead, own, r);
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
  for (int d = warp(); d < a.value; d += threads() / 32) {
    float sum = 0;
#pragma unroll
    for (int k = lane() * 8; k < rank; k += 256) {
      Eight<bf16> line = streamEight(up + int64_t(d) * rank + k);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        sum += line[i] * latent[k + i];
    }
    sum = warpSum(sum);
    if (lane() == 0)
      store(out + d, sum);
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
