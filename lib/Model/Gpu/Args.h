// Promises: the arguments of kernels that are too many to pass one by one, the
// same on both sides of a launch. Does not: need any header.
#ifndef KDAC_LIB_MODEL_GPU_ARGS_H
#define KDAC_LIB_MODEL_GPU_ARGS_H

namespace kdac::model::gpu {

/// Piece of Ops.h.
struct PieceArgs {
  int slot;
  long long past, begin, count;
};

/// y [rows, out] = x [rows, in] wᵀ.
struct ProductArgs {
  const void *w, *x;
  void *y;
  int in, out;
  int xStride, yStride;
  int isF32;      ///< y is f32, whatever the rest is
  int firstBlock; ///< of those that compute this product
};
constexpr int maxProducts = 8;
constexpr int longOutputs = 4;  ///< of a block, of one long row
constexpr int productWarps = 8; ///< of a block: outputs of one row, half of the
                                ///< outputs of several rows
struct ProductList {
  ProductArgs item[maxProducts];
  int count;
};

/// hybrid-model.md 1.6.
struct RouteArgs {
  float *logits;
  const float *bias;
  int *expert;
  float *weight;
  int stride, experts, topK, groups, topGroups, renormalise;
  float scale;
};

/// What the gated MLPs do with gate and up.
struct ActivationArgs {
  int isSitu;
  float beta, linear;
};

constexpr int outsOfBlock = 2; ///< of the kernel behind experts' hidden rows

/// Experts of few rows, straight from the weights.
struct DirectArgs {
  const int *expert;   ///< [rows, topK]
  const float *weight; ///< [rows, topK]
  const void *x, *gate, *up, *down;
  const void *sharedGate, *sharedUp, *sharedDown; ///< where chosen > topK
  void *hidden, *y;
  int topK, chosen; ///< experts of a row, the shared one included
  int xStride, yStride, in, width, out;
  ActivationArgs activation;
};

/// What is around the attention of single tokens in the latent space: q
/// [tokens, heads (nope + rope)], out [tokens, heads value].
struct LatentArgs {
  const void *q, *kvB;
  void *out;
  const PieceArgs *pieces;
  void *query;         ///< [pieces, heads, rank + rope]
  int *lengths;        ///< [pieces]: keys of single tokens, else 0
  const void *latents; ///< [pieces, heads, rank]
  int qStride, outStride, heads;
  int rank, nope, rope, value;
};

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_ARGS_H
