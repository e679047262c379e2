// Promises: routing, and experts: of few rows straight from the weights, of
// many rows sorted by expert for the products by expert. Always in the order
// of rows, without atomics. Twin: lib/Model/HostMoe.cpp.
#ifndef KDAC_LIB_MODEL_GPU_MOE_CUH
#define KDAC_LIB_MODEL_GPU_MOE_CUH

#include "Elementwise.cuh"
#include "Products.cuh"

namespace kdac::model::gpu {

constexpr int maxExperts = 1024, maxChosen = 32;

/// Integers in the order of the floats.
DEVICE uint32_t ordered(float x) {
  auto b = __builtin_bit_cast(uint32_t, x);
  return b >> 31 ? ~b : b | 0x80000000u;
}
/// Of the largest of the warp's values the smallest index.
DEVICE int warpLargest(float value, int index) {
  uint32_t own = ordered(value);
  uint32_t top = __nvvm_redux_sync_umax(own, 0xffffffffu);
  uint32_t at = own == top ? static_cast<uint32_t>(index) : 0xffffffffu;
  return static_cast<int>(__nvvm_redux_sync_umin(at, 0xffffffffu));
}

/// Experts outside of the best groups cannot be chosen; a group counts as the
/// sum of its two best. One lane after the other: groups are few.
DEVICE void keepGroups(float *choice, int experts, int groups, int kept) {
  int size = experts / groups;
  float score[32];
  uint32_t good = 0;
  for (int g = 0; g < groups; ++g) {
    float first = -__builtin_inff(), second = first;
    for (int i = 0; i < size; ++i) {
      float x = choice[g * size + i];
      if (x > first) {
        second = first;
        first = x;
      } else if (x > second) {
        second = x;
      }
    }
    score[g] = size > 1 ? first + second : first;
  }
  for (int n = 0; n < kept; ++n) {
    int best = -1;
    for (int g = 0; g < groups; ++g)
      if (!(good >> g & 1) && (best < 0 || score[g] > score[best]))
        best = g;
    good |= 1u << best;
  }
  for (int e = 0; e < experts; ++e)
    if (!(good >> (e / size) & 1))
      choice[e] = -__builtin_inff();
}

/// One warp for a row; a lane has the experts lane + 32 i in registers.
template <int Each> DEVICE void route(const RouteArgs &a) {
  SHARED static float choice[maxExperts];
  constexpr float lowest = -__builtin_inff();
  float *logits = a.logits + int64_t(blockX()) * a.stride;
  float score[Each], mine[Each];
#pragma unroll
  for (int i = 0; i < Each; ++i) {
    int e = lane() + 32 * i;
    bool exists = e < a.experts;
    score[i] = exists ? sigmoid(logits[e]) : 0.0f;
    float x = exists ? score[i] + a.bias[e] : lowest;
    mine[i] = x == x ? x : lowest;
    if (exists)
      logits[e] = score[i];
  }
  if (a.groups > 1) {
#pragma unroll
    for (int i = 0; i < Each; ++i)
      choice[lane() + 32 * i] = mine[i];
    barrier();
    if (lane() == 0)
      keepGroups(choice, a.experts, a.groups, a.topGroups);
    barrier();
#pragma unroll
    for (int i = 0; i < Each; ++i)
      mine[i] = choice[lane() + 32 * i];
  }
  float sum = 0, weight = 0;
  int expert = 0;
  uint32_t taken = 0; // of this lane's experts
  for (int j = 0; j < a.topK; ++j) {
    float value = lowest, found = 0;
    int index = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      int e = lane() + 32 * i;
      if (!(taken >> i & 1) && e < a.experts &&
          (mine[i] > value || index == 0x7fffffff)) {
        value = mine[i];
        index = e;
        found = score[i];
      }
    }
    int own = index;
    index = warpLargest(value, index);
    if (own == index)
      taken |= 1u << (index / 32);
    found = shuffleFrom(found, index % 32);
    sum += found;
    if (j == lane()) {
      weight = found;
      expert = index;
    }
  }
  float factor = a.scale;
  if (a.renormalise && a.topK > 1)
    factor /= sum + 1e-20f;
  if (lane() < a.topK) {
    a.expert[int64_t(blockX()) * a.topK + lane()] = expert;
    a.weight[int64_t(blockX()) * a.topK + lane()] = weight * factor;
  }
}

/// h [rows, chosen, width] = activation(gate x) up x, of the entry's expert;
/// experts' matrices follow one another. An entry behind the topK is the shared
/// expert.
template <typename T> DEVICE void expertsIn(const DirectArgs &d) {
  int entry = blockY(), o = blockX() * (threads() / 32) + warp();
  int row = entry / d.chosen, j = entry % d.chosen;
  if (o >= d.width)
    return;
  bool isShared = j >= d.topK;
  int64_t expert = isShared ? 0 : d.expert[row * d.topK + j];
  const T *gate = static_cast<const T *>(isShared ? d.sharedGate : d.gate);
  const T *up = static_cast<const T *>(isShared ? d.sharedUp : d.up);
  int64_t at = (expert * d.width + o) * d.in;
  const T *w[2] = {gate + at, up + at};
  float sum[2][1];
  constexpr int ahead = sizeof(T) == 4 ? 2 : 5; // half of a usual row
  dots<T, 2, 1, ahead, false>(
      w, static_cast<const T *>(d.x) + int64_t(row) * d.xStride, 0, d.in, sum);
  if (lane() == 0)
    store(static_cast<T *>(d.hidden) + int64_t(entry) * d.width + o,
          activated(d.activation, sum[0][0], sum[1][0]));
}

/// y = Σ_j weight_j down_j h_j: a block takes a few outputs of a row, a warp
/// the experts j, j + warps and so on of them; many warps with few loads each
/// are faster than the other way round. Routing is older than the kernel before
/// this one, so that the first weights are read while that still makes h.
template <typename T> DEVICE void expertsOut(const DirectArgs &d) {
  constexpr int outputs = outsOfBlock;
  constexpr int step = 32 * 8, ahead = sizeof(T) == 4 ? 2 : 4;
  SHARED static float parts[32][outputs];
  int row = blockY(), o = blockX() * outputs, warps = threads() / 32;
  const T *hidden =
      static_cast<const T *>(d.hidden) + int64_t(row) * d.chosen * d.width;
  float sum[outputs] = {};
  bool isFirst = true;
  for (int j = warp(); j < d.chosen; j += warps) {
    bool isShared = j >= d.topK;
    int64_t expert = isShared ? 0 : d.expert[row * d.topK + j];
    float weight = isShared ? 1.0f : d.weight[row * d.topK + j];
    const T *line = static_cast<const T *>(isShared ? d.sharedDown : d.down) +
                    (expert * d.out + o) * d.width;
    for (int base = lane() * 8; base < d.width; base += step * ahead) {
      Eight<T> w[outputs][ahead];
#pragma unroll
      for (int n = 0; n < outputs; ++n)
#pragma unroll
        for (int i = 0; i < ahead; ++i)
          if (int k = base + i * step; k < d.width && o + n < d.out)
            w[n][i] = streamEight(line + n * d.width + k);
      if (isFirst)
        beginKernel();
      isFirst = false;
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (int k = base + i * step; k < d.width) {
          Eight<T> h = loadEight(hidden + int64_t(j) * d.width + k);
#pragma unroll
          for (int n = 0; n < outputs; ++n)
            if (o + n < d.out) {
              float x = 0;
#pragma unroll
              for (int e = 0; e < 8; ++e)
                x += w[n][i][e] * h[e];
              sum[n] += weight * x;
            }
        }
    }
  }
#pragma unroll
  for (int n = 0; n < outputs; ++n) {
    float x = warpSum(sum[n]);
    if (lane() == 0)
      parts[warp()][n] = x;
  }
  barrier();
  if (thread() < outputs && o + thread() < d.out) {
    float total = 0;
    for (int w = 0; w < warps; ++w)
      total += parts[w][thread()];
    store(static_cast<T *>(d.y) + int64_t(row) * d.yStride + o + thread(),
          total);
  }
}

/// Block e of as many as experts: where expert e's entries begin, and which
/// they are, in order. `place` is where each entry went. A warp has entries
/// that follow one another.
DEVICE void sortEntries(const int *expert, int entries, int *starts, int *order,
                        int *place) {
  SHARED static int counts[2][32];
  int e = blockX(), warps = threads() / 32;
  int each = (entries + warps * 32 - 1) / (warps * 32) * 32;
  int begin = least(warp() * each, entries);
  int end = least(begin + each, entries);
  int before = 0, own = 0;
#pragma unroll 8
  for (int i = begin + lane(); i < end; i += 32) {
    int other = expert[i];
    before += other < e;
    own += other == e;
  }
  for (int mask = 16; mask > 0; mask >>= 1) {
    before += shuffleXor(before, mask);
    own += shuffleXor(own, mask);
  }
  if (lane() == 0) {
    counts[0][warp()] = before;
    counts[1][warp()] = own;
  }
  barrier();
  int first = 0, all = 0, at = 0;
  for (int w = 0; w < warps; ++w) {
    first += counts[0][w];
    if (w < warp())
      at += counts[1][w];
    all += counts[1][w];
  }
  if (thread() == 0) {
    starts[e] = first;
    if (e == gridX() - 1)
      starts[e + 1] = first + all;
  }
  if (own == 0)
    return;
  at += first;
  constexpr int ahead = 4;
  for (int base = begin; base < end; base += 32 * ahead) {
    bool isOwn[ahead];
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
      int i = base + 32 * n + lane();
      isOwn[n] = i < end && expert[i] == e;
    }
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
      uint32_t ballot = __nvvm_vote_ballot_sync(0xffffffffu, isOwn[n]);
      if (isOwn[n]) {
        int i = base + 32 * n + lane();
        int to = at + __builtin_popcount(ballot & ((1u << lane()) - 1));
        order[to] = i;
        place[i] = to;
      }
      at += __builtin_popcount(ballot);
    }
  }
}

/// Blocks of up to `tileRows` sorted entries of one expert: [expert, first
/// entry], then -1.
DEVICE void listTiles(const int *starts, int experts, int tileRows, int tiles,
                      int *tile) {
  SHARED static int firsts[maxExperts + 1];
  if (thread() == 0) {
    int at = 0;
    for (int e = 0; e < experts; ++e) {
      firsts[e] = at;
      at += (starts[e + 1] - starts[e] + tileRows - 1) / tileRows;
    }
    firsts[experts] = at;
  }
  barrier();
  for (int e = thread(); e < experts; e += threads())
    for (int t = firsts[e]; t < firsts[e + 1]; ++t) {
      tile[2 * t] = e;
      tile[2 * t + 1] = starts[e] + (t - firsts[e]) * tileRows;
    }
  for (int t = firsts[experts] + thread(); t < tiles; t += threads())
    tile[2 * t] = -1;
}

KERNEL BOUNDS(32, 1) void route_rows8(RouteArgs a) {
  beginKernel();
  route<8>(a);
}
KERNEL BOUNDS(32, 1) void route_rows32(RouteArgs a) {
  beginKernel();
  route<32>(a);
}
KERNEL BOUNDS(1024, 1) void sort_entries(const int *expert, int entries,
                                         int *starts, int *order, int *place) {
  beginKernel();
  sortEntries(expert, entries, starts, order, place);
}
KERNEL BOUNDS(256, 1) void list_tiles(const int *starts, int experts,
                                      int tileRows, int tiles, int *tile) {
  beginKernel();
  listTiles(starts, experts, tileRows, tiles, tile);
}
#define KDAC_MOE(T, suffix)                                                    \
  KERNEL BOUNDS(256, 1) void experts_in_##suffix(DirectArgs d) {               \
    beginKernel();                                                             \
    expertsIn<T>(d);                                                           \
  }                                                                            \
  KERNEL BOUNDS(512, 2) void experts_out_##suffix(DirectArgs d) {              \
    expertsOut<T>(d);                                                          \
  }
KDAC_MOE(float, f32)
KDAC_MOE(bf16, bf16)

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_MOE_CUH
