// Promises: routing, and experts: of few rows straight from the weights, of
// many rows sorted by expert for the products of Gemm.cuh. Always in the order
// of rows, without atomics. Twin: lib/Model/HostMoe.cpp.
#ifndef KDAC_LIB_MODEL_GPU_MOE_CUH
#define KDAC_LIB_MODEL_GPU_MOE_CUH

#include "Elementwise.cuh"
#include "Products.cuh"

namespace kdac::model::gpu {

constexpr int maxExperts = 1024, maxChosen = 32;

/// The largest of the warp's values and its index.
DEVICE void warpLargest(float &value, int &index) {
  for (int mask = 16; mask > 0; mask >>= 1)
    takeLarger(value, index, shuffleXor(value, mask), shuffleXor(index, mask));
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

/// One warp for a row.
DEVICE void route(const RouteArgs &a) {
  SHARED static float scores[maxExperts], choice[maxExperts];
  constexpr float lowest = -__builtin_inff();
  float *logits = a.logits + int64_t(blockX()) * a.stride;
  for (int e = lane(); e < a.experts; e += 32) {
    scores[e] = logits[e] = sigmoid(logits[e]);
    float x = scores[e] + a.bias[e];
    choice[e] = x == x ? x : lowest;
  }
  barrier();
  if (a.groups > 1) {
    if (lane() == 0)
      keepGroups(choice, a.experts, a.groups, a.topGroups);
    barrier();
  }
  int *expert = a.expert + int64_t(blockX()) * a.topK;
  float *weight = a.weight + int64_t(blockX()) * a.topK;
  float sum = 0, mine = 0;
  int mineIs = 0;
  uint32_t taken = 0; // of this lane's experts, e = lane + 32 i
  for (int j = 0; j < a.topK; ++j) {
    float value = lowest;
    int index = 0x7fffffff;
    for (int i = 0, e = lane(); e < a.experts; ++i, e += 32)
      if (!(taken >> i & 1))
        takeLarger(value, index, choice[e], e);
    warpLargest(value, index);
    if (index % 32 == lane())
      taken |= 1u << (index / 32);
    sum += scores[index];
    if (j == lane()) {
      mine = scores[index];
      mineIs = index;
    }
  }
  float factor = a.scale;
  if (a.renormalise && a.topK > 1)
    factor /= sum + 1e-20f;
  if (lane() < a.topK) {
    expert[lane()] = mineIs;
    weight[lane()] = mine * factor;
  }
}

/// h [rows topK, width] = activation(gate x) up x, of the entry's expert.
/// Experts' matrices follow one another.
template <typename T>
DEVICE void expertsIn(const int *expert, int topK, const T *x, int xStride,
                      const T *gate, const T *up, T *h, int in, int width,
                      const ActivationArgs &a) {
  int entry = blockY(), o = blockX() * (threads() / 32) + warp();
  if (o >= width)
    return;
  int64_t at = (int64_t(expert[entry]) * width + o) * in;
  float sum[2][1];
  dotTwo<T, 1>(gate + at, up + at, x + int64_t(entry / topK) * xStride, 0, in,
               sum);
  if (lane() == 0)
    store(h + int64_t(entry) * width + o, activated(a, sum[0][0], sum[1][0]));
}

/// y = Σ_j weight_j down_j h_j: a warp takes an output of a row.
template <typename T>
DEVICE void expertsOut(const int *expert, const float *weight, int topK,
                       const T *h, const T *down, T *y, int yStride, int out,
                       int width) {
  int row = blockY(), o = blockX() * (threads() / 32) + warp();
  if (o >= out)
    return;
  float total = 0;
  for (int j = 0; j < topK; j += 2) {
    int64_t entry = int64_t(row) * topK + j;
    bool hasSecond = j + 1 < topK;
    int64_t next = hasSecond ? entry + 1 : entry;
    const T *w0 = down + (int64_t(expert[entry]) * out + o) * width;
    const T *w1 = down + (int64_t(expert[next]) * out + o) * width;
    const T *h0 = h + entry * width, *h1 = h + next * width;
    float a = 0, b = 0;
    constexpr int step = 32 * 8, ahead = 4;
    for (int base = lane() * 8; base < width; base += step * ahead) {
      Eight<T> p[ahead], q[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (int k = base + i * step; k < width) {
          p[i] = streamEight(w0 + k);
          q[i] = streamEight(w1 + k);
        }
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (int k = base + i * step; k < width) {
          Eight<T> u = loadEight(h0 + k), v = loadEight(h1 + k);
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            a += p[i][e] * u[e];
            b += q[i][e] * v[e];
          }
        }
    }
    total += weight[entry] * a;
    if (hasSecond)
      total += weight[next] * b;
  }
  total = warpSum(total);
  if (lane() == 0)
    store(y + int64_t(row) * yStride + o, total);
}

/// Block e of as many as experts: where expert e's entries begin, and which
/// they are, in order. `place` is where each entry went.
DEVICE void sortEntries(const int *expert, int entries, int *starts, int *order,
                        int *place) {
  SHARED static int counts[2][32];
  int e = blockX(), warps = threads() / 32;
  int before = 0, own = 0;
  for (int i = thread(); i < entries; i += threads()) {
    before += expert[i] < e;
    own += expert[i] == e;
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
  int first = 0, all = 0;
  for (int w = 0; w < warps; ++w) {
    first += counts[0][w];
    all += counts[1][w];
  }
  if (thread() == 0) {
    starts[e] = first;
    if (e == gridX() - 1)
      starts[e + 1] = first + all;
  }
  barrier();
  for (int base = 0; base < entries && all > 0; base += threads()) {
    int i = base + thread();
    bool isOwn = i < entries && expert[i] == e;
    uint32_t ballot = __nvvm_vote_ballot_sync(0xffffffffu, isOwn);
    if (lane() == 0)
      counts[0][warp()] = __builtin_popcount(ballot);
    barrier();
    int at = first + __builtin_popcount(ballot & ((1u << lane()) - 1));
    int found = 0;
    for (int w = 0; w < warps; ++w) {
      if (w < warp())
        at += counts[0][w];
      found += counts[0][w];
    }
    if (isOwn) {
      order[at] = i;
      place[i] = at;
    }
    first += found;
    barrier();
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

/// y = Σ_j weight_j part[place_j].
template <typename T>
DEVICE void combine(const float *weight, const int *place, int topK,
                    const T *part, int partStride, T *y, int yStride,
                    int width) {
  int64_t row = blockX();
  for (int c = thread() * 2; c < width; c += threads() * 2) {
    float a = 0, b = 0;
    for (int j = 0; j < topK; ++j) {
      float w = weight[row * topK + j];
      const T *from = part + int64_t(place[row * topK + j]) * partStride + c;
      a += w * load(from);
      b += w * load(from + 1);
    }
    store(y + row * yStride + c, a);
    store(y + row * yStride + c + 1, b);
  }
}

KERNEL void route_rows(RouteArgs a) { route(a); }
KERNEL BOUNDS(512, 1) void sort_entries(const int *expert, int entries,
                                        int *starts, int *order, int *place) {
  sortEntries(expert, entries, starts, order, place);
}
KERNEL BOUNDS(256, 1) void list_tiles(const int *starts, int experts,
                                      int tileRows, int tiles, int *tile) {
  listTiles(starts, experts, tileRows, tiles, tile);
}
#define KDAC_MOE(T, suffix)                                                    \
  KERNEL BOUNDS(256, 1) void experts_in_##suffix(                              \
      const int *expert, int topK, const T *x, int xStride, const T *gate,     \
      const T *up, T *h, int in, int width, ActivationArgs a) {                \
    expertsIn(expert, topK, x, xStride, gate, up, h, in, width, a);            \
  }                                                                            \
  KERNEL BOUNDS(256, 1) void experts_out_##suffix(                             \
      const int *expert, const float *weight, int topK, const T *h,            \
      const T *down, T *y, int yStride, int out, int width) {                  \
    expertsOut(expert, weight, topK, h, down, y, yStride, out, width);         \
  }                                                                            \
  KERNEL void combine_##suffix(const float *weight, const int *place,          \
                               int topK, const T *part, int partStride, T *y,  \
                               int yStride, int width) {                       \
    combine(weight, place, topK, part, partStride, y, yStride, width);         \
  }
KDAC_MOE(float, f32)
KDAC_MOE(bf16, bf16)

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_MOE_CUH
