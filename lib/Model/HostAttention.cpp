// MLA layers on the host: absorbed for single tokens, materialised for longer
// pieces. hybrid-model.md 1.5 and 5; no rotation anywhere.
#include "HostOps.h"
#include "Lanes.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

namespace kdac::model {

namespace {

constexpr int64_t keyBlock = 128; ///< cached tokens at a time

/// Keys of a softmax that is taken block by block: the largest score so far,
/// the sum of exponentials relative to it.
struct Running {
  float largest = -INFINITY, total = 0;

  /// Turns `count` scores into exponentials; returns the factor for what was
  /// accumulated before.
  float take(float *scores, int64_t count) {
    float next = *std::max_element(scores, scores + count);
    next = std::max(next, largest);
    float factor = largest == -INFINITY ? 0.0f : std::exp(largest - next);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i)
      sum += scores[i] = std::exp(scores[i] - next);
    largest = next;
    total = total * factor + sum;
    return factor;
  }
};

void scaleBy(float factor, float *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] *= factor;
}

/// C = alpha A op(B) + beta C, row-major.
void gemm(bool isTransposed, int64_t m, int64_t n, int64_t k, float alpha,
          const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
          float *c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans,
              isTransposed ? CblasTrans : CblasNoTrans, static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, c,
              static_cast<int>(ldc));
}

} // namespace

void HostOps::storeLatent(const BatchView &batch, Rows c, const Vector &norm,
                          double eps, const MlaCache &cache) {
  if (!fits(batch.tokens, batch.count))
    return;
  listRows(batch.pieces, batch.count, rowSlots.data(), rowPositions.data());
  launchRows(RowOp::Latent, latentWidth(config), [&](NamedCall &call) {
    setLatent(call, config, c.first(batch.tokens), norm.data(), eps,
              rowSlots.data(), rowPositions.data(), cache);
  });
}

Status HostOps::loadAttention(const PackReader &pack) {
  StatusOr<const PackVariant *> variant =
      selectAttention(pack, Place(), config, Element::F32);
  if (!variant.ok())
    return variant.status();
  StatusOr<HostKernel> kernel = HostKernel::load(pack, **variant);
  if (!kernel.ok())
    return kernel.status();
  attention = std::make_unique<KdaKernel>(std::move(*kernel));
  StatusOr<int64_t> bytes =
      attentionWorkspaceBytes(attention->call, config, limits.pieces);
  if (!bytes.ok())
    return bytes.status();
  lengths.resize(static_cast<size_t>(limits.pieces));
  int64_t rows = limits.pieces * config.heads;
  for (auto [to, size] : {std::pair(&queries, rows * config.cacheDim() * 4),
                          std::pair(&latents, rows * config.latentRank * 4),
                          std::pair(&partials, *bytes)}) {
    StatusOr<AlignedBuffer> memory =
        AlignedBuffer::allocate(size, "attention of single tokens");
    if (!memory.ok())
      return memory.status();
    *to = std::move(*memory);
  }
  return Status::success();
}

/// [W_UKᵀ q_nope | q_rope].
void HostOps::absorbQuery(const Piece &piece, int64_t head, Rows q,
                          const Matrix &kvB, float *query, float *line) const {
  int64_t rank = config.latentRank, nope = config.nopeDim;
  int64_t first = head * (nope + config.valueDim); // of kvB's rows
  const float *raw = q.row(piece.begin) + head * config.queryDim();
  std::fill_n(query, rank, 0.0f);
  for (int64_t i = 0; i < nope; ++i) {
    widenRows(kvB, first + i, 1, line);
    axpy(raw[i], line, query, rank);
  }
  std::copy_n(raw + nope, config.ropeDim, query + rank);
}

/// Cached rows are read once for several heads, and never expanded.
void HostOps::attendSingle(const BatchView &batch, Rows q, const Matrix &kvB,
                           const MlaCache &cache, Rows out) {
  if (!fits(0, batch.count))
    return;
  int64_t heads = config.heads, rank = config.latentRank;
  auto *query = queries.floats();
  auto *latent = latents.floats();
  for (int64_t p = 0; p < batch.count; ++p) {
    const Piece &piece = batch.pieces[p];
    lengths[static_cast<size_t>(p)] =
        piece.count == 1 ? static_cast<int32_t>(piece.past + 1) : 0;
  }
  auto forSingle = [&](auto body, int64_t scratchFloats) {
    parallel(
        batch.count * heads,
        [&](int64_t i, float *scratch) {
          const Piece &piece = batch.pieces[i / heads];
          if (piece.count == 1)
            body(piece, i, scratch);
        },
        scratchFloats);
  };
  forSingle(
      [&](const Piece &piece, int64_t i, float *scratch) {
        absorbQuery(piece, i % heads, q, kvB, query + i * config.cacheDim(),
                    scratch);
      },
      paddedWidth(rank));
  setAttention(attention->call, config, cache,
               {batch.count, query, batch.slots, lengths.data(), latent,
                partials.bytes()});
  launch(*attention);
  forSingle(
      [&](const Piece &piece, int64_t i, float *) {
        int64_t head = i % heads, wide = config.nopeDim + config.valueDim;
        float *to = out.row(piece.begin) + head * config.valueDim;
        for (int64_t j = 0; j < config.valueDim; ++j)
          to[j] =
              rowDot(kvB, head * wide + config.nopeDim + j, latent + i * rank);
      },
      0);
}

/// Keys and values of a block of cached tokens are expanded for one head, and
/// all rows of the piece meet them.
void HostOps::attendMaterialised(const Piece &piece, int64_t head, Rows q,
                                 const Matrix &kvB, const MlaCache &cache,
                                 Rows out, float *scratch) const {
  int64_t rank = config.latentRank, nope = config.nopeDim;
  int64_t rope = config.ropeDim, value = config.valueDim;
  int64_t wide = nope + value, rows = piece.count;
  float *weights = scratch;                             // [nope + value, rank]
  float *latent = weights + wide * rank;                // [keyBlock, cacheDim]
  float *expanded = latent + keyBlock * cache.cacheDim; // [keyBlock, wide]
  float *scores = expanded + keyBlock * wide;           // [rows, keyBlock]
  float *running = scores + rows * keyBlock;            // [rows] of Running
  auto *state = reinterpret_cast<Running *>(running);
  std::fill_n(state, rows, Running());
  widenRows(kvB, head * wide, wide, weights);
  const float *query = q.row(piece.begin) + head * config.queryDim();
  float *to = out.row(piece.begin) + head * value;
  for (int64_t i = 0; i < rows; ++i)
    std::fill_n(to + i * out.stride, value, 0.0f);
  float scale = 1 / std::sqrt(static_cast<float>(config.queryDim()));
  int64_t keys = piece.past + rows;
  for (int64_t begin = 0; begin < keys; begin += keyBlock) {
    int64_t count = std::min(keyBlock, keys - begin);
    for (int64_t t = 0; t < count; ++t)
      std::copy_n(cache.row(piece.slot, begin + t), cache.cacheDim,
                  latent + t * cache.cacheDim);
    gemm(true, count, wide, rank, 1, latent, cache.cacheDim, weights, rank, 0,
         expanded, wide);
    gemm(true, rows, count, nope, scale, query, q.stride, expanded, wide, 0,
         scores, keyBlock);
    if (rope > 0)
      gemm(true, rows, count, rope, scale, query + nope, q.stride,
           latent + rank, cache.cacheDim, 1, scores, keyBlock);
    for (int64_t i = 0; i < rows; ++i) {
      // Row i sees the cached tokens up to and including its own.
      int64_t seen = std::clamp<int64_t>(piece.past + i + 1 - begin, 0, count);
      float *line = scores + i * keyBlock;
      if (seen > 0)
        scaleBy(state[i].take(line, seen), to + i * out.stride, value);
      std::fill(line + seen, line + count, 0.0f);
    }
    gemm(false, rows, value, count, 1, scores, keyBlock, expanded + nope, wide,
         1, to, out.stride);
  }
  for (int64_t i = 0; i < rows; ++i)
    scaleBy(1 / state[i].total, to + i * out.stride, value);
}

void HostOps::attend(const BatchView &batch, Rows q, const Matrix &kvB,
                     const MlaCache &cache, Rows out) {
  int64_t longest = 0;
  bool hasSingle = false;
  for (int64_t p = 0; p < batch.count; ++p) {
    longest = std::max(longest, batch.pieces[p].count);
    hasSingle |= batch.pieces[p].count == 1;
  }
  if (hasSingle)
    attendSingle(batch, q, kvB, cache, out);
  if (longest <= 1)
    return;
  int64_t rank = config.latentRank, wide = config.nopeDim + config.valueDim;
  parallel(
      batch.count * config.heads,
      [&](int64_t i, float *scratch) {
        const Piece &piece = batch.pieces[i / config.heads];
        if (piece.count > 1)
          attendMaterialised(piece, i % config.heads, q, kvB, cache, out,
                             scratch);
      },
      wide * rank + keyBlock * (cache.cacheDim + wide) +
          longest * (keyBlock + 2));
}

} // namespace kdac::model
