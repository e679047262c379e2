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

/// The query moves into the latent space and the result back out of it, so that
/// cached rows are read once and never expanded.
void HostOps::attendAbsorbed(const Piece &piece, int64_t head, Rows q,
                             const Matrix &kvB, const MlaCache &cache, Rows out,
                             float *scratch) const {
  int64_t rank = config.latentRank, nope = config.nopeDim;
  int64_t first = head * (nope + config.valueDim); // of kvB's rows
  float *query = scratch, *sum = query + paddedWidth(cache.cacheDim);
  float *line = sum + paddedWidth(rank), *scores = line + paddedWidth(rank);
  const float *raw = q.row(piece.begin) + head * config.queryDim();
  std::fill_n(query, rank, 0.0f);
  std::fill_n(sum, rank, 0.0f);
  for (int64_t i = 0; i < nope; ++i) {
    widenRows(kvB, first + i, 1, line);
    axpy(raw[i], line, query, rank);
  }
  std::copy_n(raw + nope, config.ropeDim, query + rank);
  float scale = 1 / std::sqrt(static_cast<float>(config.queryDim()));
  int64_t keys = piece.past + 1;
  Running running;
  for (int64_t begin = 0; begin < keys; begin += keyBlock) {
    int64_t count = std::min(keyBlock, keys - begin);
    for (int64_t t = 0; t < count; ++t)
      scores[t] =
          scale * dot(query, cache.row(piece.slot, begin + t), cache.cacheDim);
    scaleBy(running.take(scores, count), sum, rank);
    for (int64_t t = 0; t < count; ++t)
      axpy(scores[t], cache.row(piece.slot, begin + t), sum, rank);
  }
  scaleBy(1 / running.total, sum, rank);
  float *to = out.row(piece.begin) + head * config.valueDim;
  for (int64_t i = 0; i < config.valueDim; ++i)
    to[i] = rowDot(kvB, first + nope + i, sum);
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
  for (int64_t p = 0; p < batch.count; ++p)
    longest = std::max(longest, batch.pieces[p].count);
  int64_t rank = config.latentRank, wide = config.nopeDim + config.valueDim;
  int64_t absorbed =
      paddedWidth(cache.cacheDim) + 2 * paddedWidth(rank) + keyBlock;
  int64_t materialised = wide * rank + keyBlock * (cache.cacheDim + wide) +
                         longest * (keyBlock + 2);
  parallel(
      batch.count * config.heads,
      [&](int64_t i, float *scratch) {
        const Piece &piece = batch.pieces[i / config.heads];
        int64_t head = i % config.heads;
        if (piece.count == 1)
          attendAbsorbed(piece, head, q, kvB, cache, out, scratch);
        else if (piece.count > 1)
          attendMaterialised(piece, head, q, kvB, cache, out, scratch);
      },
      std::max(absorbed, materialised));
}

} // namespace kdac::model
