// Promises: what is around attention in MLA layers, which comes out of a pack
// (AttentionCall.h): queries of single tokens into the latent space, the way
// out of it, and the rows of a slot's latents side by side, for keys to be
// expanded.
#ifndef KDAC_LIB_MODEL_GPU_MLA_CUH
#define KDAC_LIB_MODEL_GPU_MLA_CUH

#include "Cuda.cuh"

namespace kdac::model::gpu {

//===-- Single tokens, of any widths
//----------------------------------------===//

/// query [piece, head] = [W_UKᵀ q_nope | q_rope]: block (head, piece).
template <typename T> DEVICE void absorbAny(const LatentArgs &a) {
  beginKernel();
  int head = blockX(), width = a.rank + a.rope;
  PieceArgs p = a.pieces[blockY()];
  if (head == 0 && thread() == 0)
    a.lengths[blockY()] = p.count == 1 ? static_cast<int>(p.past + 1) : 0;
  if (p.count != 1)
    return;
  const T *q = static_cast<const T *>(a.q) + p.begin * a.qStride +
               head * (a.nope + a.rope);
  const T *up = static_cast<const T *>(a.kvB) +
                int64_t(head) * (a.nope + a.value) * a.rank;
  T *to =
      static_cast<T *>(a.query) + (int64_t(blockY()) * a.heads + head) * width;
  for (int i = thread(); i < a.rank; i += threads()) {
    float x = 0;
    for (int d = 0; d < a.nope; ++d)
      x += load(q + d) * load(up + int64_t(d) * a.rank + i);
    store(to + i, x);
  }
  for (int i = thread(); i < a.rope; i += threads())
    to[a.rank + i] = q[a.nope + i];
}

/// out [head] = W_UV times the head's latent row: block (head, piece), a warp a
/// value.
template <typename T> DEVICE void leaveAny(const LatentArgs &a) {
  beginKernel();
  int head = blockX();
  PieceArgs p = a.pieces[blockY()];
  if (p.count != 1)
    return;
  const T *row = static_cast<const T *>(a.latents) +
                 (int64_t(blockY()) * a.heads + head) * a.rank;
  const T *up = static_cast<const T *>(a.kvB) +
                (int64_t(head) * (a.nope + a.value) + a.nope) * a.rank;
  T *out = static_cast<T *>(a.out) + p.begin * a.outStride + head * a.value;
  for (int d = warp(); d < a.value; d += threads() / 32) {
    float x = 0;
    for (int i = lane(); i < a.rank; i += 32)
      x += load(row + i) * load(up + int64_t(d) * a.rank + i);
    x = warpSum(x);
    if (lane() == 0)
      store(out + d, x);
  }
}

#define KDAC_LATENT_SPACE(T, suffix)                                           \
  KERNEL BOUNDS(256, 1) void absorb_any_##suffix(LatentArgs a) {               \
    absorbAny<T>(a);                                                           \
  }                                                                            \
  KERNEL BOUNDS(256, 1) void leave_any_##suffix(LatentArgs a) {                \
    leaveAny<T>(a);                                                            \
  }
KDAC_LATENT_SPACE(float, f32)
KDAC_LATENT_SPACE(bf16, bf16)

//===-- Single tokens, of the published models' widths in bf16
//--------------===//
// Weights are on their way while the kernel ahead still runs.

constexpr int rank = 512, width = 576; ///< of a cached row
constexpr int nope = 128, value = 128; ///< of a head

/// query [piece, head] = [W_UKᵀ q_nope | q_rope]: a block takes a quarter of
/// the latent columns of a head. 128 threads.
DEVICE void absorb(const LatentArgs &a) {
  SHARED static float parts[8][128];
  int head = blockY(), column = blockX() * 128 + (thread() & 15) * 8;
  constexpr int each = nope / 8;
  int part = thread() >> 4;
  const bf16 *up = static_cast<const bf16 *>(a.kvB) +
                   int64_t(head) * (nope + value) * rank + column;
  Eight<bf16> lines[each];
#pragma unroll
  for (int i = 0; i < each; ++i)
    lines[i] = streamEight(up + int64_t(part * each + i) * rank);
  beginKernel();
  PieceArgs p = a.pieces[blockZ()];
  if (blockX() == 0 && head == 0 && thread() == 0)
    a.lengths[blockZ()] = p.count == 1 ? static_cast<int>(p.past + 1) : 0;
  if (p.count != 1)
    return;
  const bf16 *q = static_cast<const bf16 *>(a.q) + p.begin * a.qStride +
                  head * (nope + width - rank);
  float sum[8] = {};
#pragma unroll
  for (int i = 0; i < each; ++i) {
    float x = load(q + part * each + i);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      sum[j] += x * lines[i][j];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    parts[part][(thread() & 15) * 8 + i] = sum[i];
  barrier();
  bf16 *to = static_cast<bf16 *>(a.query) +
             (int64_t(blockZ()) * a.heads + head) * width;
  float x = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    x += parts[i][thread()];
  store(to + blockX() * 128 + thread(), x);
  if (blockX() == 0 && thread() < width - rank)
    to[rank + thread()] = q[nope + thread()];
}

/// out [head] = W_UV times the head's latent row: block (head, piece) of 512
/// threads, a warp 8 values.
DEVICE void leaveLatents(const LatentArgs &a) {
  SHARED static float latent[rank];
  constexpr int each = value / 16;
  int head = blockX();
  const bf16 *up = static_cast<const bf16 *>(a.kvB) +
                   (int64_t(head) * (nope + value) + nope) * rank;
  Eight<bf16> lines[each][2];
#pragma unroll
  for (int n = 0; n < each; ++n)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      lines[n][k] = streamEight(up + int64_t(warp() * each + n) * rank +
                                k * 256 + lane() * 8);
  beginKernel();
  PieceArgs p = a.pieces[blockY()];
  if (p.count != 1)
    return;
  const bf16 *row = static_cast<const bf16 *>(a.latents) +
                    (int64_t(blockY()) * a.heads + head) * rank;
  latent[thread()] = load(row + thread());
  barrier();
  bf16 *out = static_cast<bf16 *>(a.out) + p.begin * a.outStride + head * value;
#pragma unroll
  for (int n = 0; n < each; ++n) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        sum += lines[n][k][i] * latent[k * 256 + lane() * 8 + i];
    float x = warpSum(sum);
    if (lane() == 0)
      store(out + warp() * each + n, x);
  }
}

KERNEL BOUNDS(128, 1) void absorb_bf16(LatentArgs a) { absorb(a); }
KERNEL BOUNDS(512, 1) void leave_latents_bf16(LatentArgs a) {
  leaveLatents(a);
}

//===-- Prompts
//------------------------------------------------------------===//

/// Rows of a slot's latents, tokens [first, first + blocks), side by side. A
/// row is `quads` times 16 bytes. 64-bit throughout.
KERNEL void latents(const Quad *pages, const int *table, int64_t pageTokens,
                    int64_t pagesPerSlot, int slot, int64_t first, int quads,
                    Quad *to) {
  beginKernel();
  int64_t t = first + blockX();
  int64_t page = table[slot * pagesPerSlot + t / pageTokens];
  const Quad *from = pages + (page * pageTokens + t % pageTokens) * quads;
  for (int i = thread(); i < quads; i += threads())
    to[int64_t(blockX()) * quads + i] = from[i];
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_MLA_CUH
