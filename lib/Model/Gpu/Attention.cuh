// Promises: MLA in its absorbed form for any widths, one block for a row and a
// head: what is correct everywhere. Also the rows of a slot's latents side by
// side, for keys to be expanded. The fast forms come out of a pack
// (AttentionCall.h), with Decode.cuh around that of single tokens.
#ifndef KDAC_LIB_MODEL_GPU_ATTENTION_CUH
#define KDAC_LIB_MODEL_GPU_ATTENTION_CUH

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

/// Where the latent row of token t of a slot is; 64-bit throughout.
template <typename T>
DEVICE T *latentRow(void *pages, const int *table, int64_t pageTokens,
                    int64_t pagesPerSlot, int slot, int64_t t, int width) {
  int64_t page = table[slot * pagesPerSlot + t / pageTokens];
  return static_cast<T *>(pages) + (page * pageTokens + t % pageTokens) * width;
}

constexpr int keyBlock = 128; ///< cached tokens at a time

/// Shared memory: query [rank + rope], sum [rank], scores [keyBlock].
template <typename T> DEVICE void attend(const AttentionArgs &a) {
  extern SHARED float memory[];
  int width = a.rank + a.rope, head = blockY();
  float *query = memory, *sum = query + width, *scores = sum + a.rank;
  int64_t row = blockX();
  PieceArgs p = a.pieces[pieceOf(a.pieces, a.pieceCount, row)];
  const T *q =
      static_cast<const T *>(a.q) + row * a.qStride + head * (a.nope + a.rope);
  const T *up = static_cast<const T *>(a.kvB) +
                int64_t(head) * (a.nope + a.value) * a.rank;
  for (int i = thread(); i < a.rank; i += threads()) {
    float x = 0;
    for (int d = 0; d < a.nope; ++d)
      x += load(q + d) * load(up + int64_t(d) * a.rank + i);
    query[i] = x;
    sum[i] = 0;
  }
  for (int i = thread(); i < a.rope; i += threads())
    query[a.rank + i] = load(q + a.nope + i);
  int64_t keys = p.past + row - p.begin + 1;
  float largest = -__builtin_inff(), total = 0;
  auto key = [&](int64_t t) {
    return latentRow<const T>(const_cast<void *>(a.pages), a.table,
                              a.pageTokens, a.pagesPerSlot, p.slot, t, width);
  };
  for (int64_t begin = 0; begin < keys; begin += keyBlock) {
    int count = static_cast<int>(least(int64_t(keyBlock), keys - begin));
    barrier();
    for (int t = warp(); t < count; t += threads() / 32) {
      const T *k = key(begin + t);
      float x = 0;
      for (int i = lane(); i < width; i += 32)
        x += query[i] * load(k + i);
      x = warpSum(x);
      if (lane() == 0)
        scores[t] = x * a.scale;
    }
    barrier();
    float next = largest;
    for (int t = 0; t < count; ++t)
      next = greatest(next, scores[t]);
    float factor = exp2(largest - next), added = 0;
    for (int t = 0; t < count; ++t)
      added += exp2(scores[t] - next);
    for (int i = thread(); i < a.rank; i += threads()) {
      float x = sum[i] * factor;
      for (int t = 0; t < count; ++t)
        x += exp2(scores[t] - next) * load(key(begin + t) + i);
      sum[i] = x;
    }
    largest = next;
    total = total * factor + added;
  }
  barrier();
  T *out = static_cast<T *>(a.out) + row * a.outStride + head * a.value;
  for (int d = warp(); d < a.value; d += threads() / 32) {
    const T *line = up + int64_t(a.nope + d) * a.rank;
    float x = 0;
    for (int i = lane(); i < a.rank; i += 32)
      x += sum[i] * load(line + i);
    x = warpSum(x);
    if (lane() == 0)
      store(out + d, x / total);
  }
}

#define KDAC_ATTENTION(T, suffix)                                              \
  KERNEL BOUNDS(128, 1) void attend_##suffix(AttentionArgs a) {                \
    beginKernel();                                                             \
    attend<T>(a);                                                              \
  }
KDAC_ATTENTION(float, f32)
KDAC_ATTENTION(bf16, bf16)

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

#endif // KDAC_LIB_MODEL_GPU_ATTENTION_CUH
