// MLA layers on the host: absorbed for single tokens, on expanded keys for
// longer pieces. hybrid-model.md 1.5 and 5; no rotation anywhere.
#include "HostOps.h"
#include "Lanes.h"

#include <algorithm>

namespace kdac::model {

/// Cached tokens whose keys and values are expanded at a time.
static constexpr int64_t keyBlock = 1024;

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
  for (auto [to, variant] :
       {std::pair(&attention,
                  selectAttention(pack, Place(), config, Element::F32)),
        {&prompt, selectPrompt(pack, Place(), config, Element::F32)}}) {
    if (!variant.ok())
      return variant.status();
    StatusOr<HostKernel> kernel = HostKernel::load(pack, **variant);
    if (!kernel.ok())
      return kernel.status();
    *to = std::make_unique<KdaKernel>(std::move(*kernel));
  }
  StatusOr<int64_t> bytes =
      attentionWorkspaceBytes(attention->call, config, limits.pieces);
  if (!bytes.ok())
    return bytes.status();
  lengths.resize(static_cast<size_t>(limits.pieces));
  int64_t rows = limits.pieces * config.heads;
  int64_t entries = limits.tokens * config.heads;
  int64_t wide = config.heads * (config.nopeDim + config.valueDim);
  for (auto [to, size] : {std::pair(&queries, rows * config.cacheDim() * 4),
                          {&latents, rows * config.latentRank * 4},
                          {&partials, *bytes},
                          {&keyRows, keyBlock * config.cacheDim() * 4},
                          {&expanded, keyBlock * paddedWidth(wide) * 4},
                          {&averages, entries * config.valueDim * 4},
                          {&logs, entries * 4}}) {
    StatusOr<AlignedBuffer> memory = AlignedBuffer::allocate(size, "attention");
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

/// Latent rows of the block's keys side by side, keys and values of all heads,
/// then the kernel.
void HostOps::attendPrompt(const BatchView &batch, const PromptBlock &block,
                           Rows q, const Matrix &kvB, const MlaCache &cache,
                           Rows out) {
  int64_t width = config.cacheDim();
  const int32_t *ends = prompts.keyOffsets.data() + block.offsets;
  for (int64_t i = 0; i < block.pieces; ++i) {
    int32_t slot = batch.pieces[block.piece + i].slot;
    parallel(ends[i + 1] - ends[i], [&](int64_t t, float *) {
      std::copy_n(cache.row(slot, block.first + t), width,
                  keyRows.floats() + (ends[i] + t) * width);
    });
  }
  Rows rows = {keyRows.floats(), block.keys, config.latentRank, width};
  PromptTensors t;
  t.q = q;
  t.out = out;
  t.expanded = {expanded.floats(), block.keys, kvB.out, paddedWidth(kvB.out)};
  matmul(rows, kvB, t.expanded);
  t.shared = keyRows.floats() + config.latentRank;
  t.offsets = batch.offsets + block.piece;
  t.keyOffsets = ends;
  t.averages = averages.floats();
  t.logs = logs.floats();
  setPrompt(prompt->call, config, block, t);
  launch(*prompt);
}

void HostOps::attend(const BatchView &batch, Rows q, const Matrix &kvB,
                     const MlaCache &cache, Rows out) {
  if (!fits(batch.tokens, batch.count))
    return;
  prompts.make(batch.pieces, batch.count, keyBlock);
  for (const PromptBlock &block : prompts.blocks)
    attendPrompt(batch, block, q, kvB, cache, out);
  if (std::any_of(batch.pieces, batch.pieces + batch.count,
                  [](const Piece &piece) { return piece.count == 1; }))
    attendSingle(batch, q, kvB, cache, out);
}

} // namespace kdac::model
