// KDA and MLA layers on a GPU.
#include "GpuOps.h"

#include <algorithm>

namespace kdac::model {

static KdaParameters parametersOf(const KdaWeights &w) {
  return {w.aLog.device,  w.dtBias.device, w.qConv.device,
          w.kConv.device, w.vConv.device,  w.oNorm.device};
}

Status GpuOps::loadKernel(const PackReader &pack, bool isStep) {
  auto loaded = loadSelected(
      pack, selectVariant(pack, Place{&gpu->device().info()},
                          kdaRequest(config, isStep, limits.type)));
  if (!loaded.ok())
    return loaded.status();
  StatusOr<int64_t> bytes =
      kdaWorkspaceBytes((*loaded)->call, config, limits.pieces, limits.tokens);
  if (!bytes.ok())
    return bytes.status();
  workspaceBytes = std::max(workspaceBytes, *bytes);
  (isStep ? step : chunk) = std::move(*loaded);
  return Status::success();
}

/// In f32 the step kernel takes prompts too: products of the chunk kernel round
/// to tf32.
void GpuOps::kdaLayer(const BatchView &batch, const KdaWeights &w, Rows q,
                      Rows k, Rows v, Rows decay, Rows beta, Rows z,
                      const KdaCache &cache, Rows out) {
  bool isStep = batch.isDecode || limits.type == Element::F32;
  KdaKernel &kernel = isStep ? *step : *chunk;
  KdaParameters parameters = parametersOf(w);
  setRecurrence(kernel.call, config, batch, parameters, {q, k, v}, decay, beta,
                cache, out, scratch.workspace);
  setNeighbours(kernel.call, config, parameters, cache, z);
  if (first.ok())
    first = kernel.kernel.launch(gpu->stream(), kernel.call.arguments());
}

void GpuOps::storeLatent(const BatchView &batch, Rows c, const Vector &norm,
                         double eps, const MlaCache &cache) {
  launchRows(RowOp::Latent, latentWidth(config), [&](NamedCall &call) {
    setLatent(call, config, c.first(batch.tokens), norm.device, eps, rowSlots,
              rowPositions, cache);
  });
}

Status GpuOps::loadAttention(const PackReader &pack) {
  Place place{&gpu->device().info()};
  for (auto [to, variant] :
       {std::pair(&latentKernel,
                  selectAttention(pack, place, config, limits.type)),
        {&promptKernel, selectPrompt(pack, place, config, limits.type)}}) {
    auto loaded = loadSelected(pack, variant);
    if (!loaded.ok())
      return loaded.status();
    *to = std::move(*loaded);
  }
  StatusOr<int64_t> bytes =
      attentionWorkspaceBytes(latentKernel->call, config, limits.pieces);
  if (bytes.ok())
    workspaceBytes = std::max(workspaceBytes, *bytes);
  return bytes.status();
}

void GpuOps::attendSingle(const BatchView &batch, Rows q, const Matrix &kvB,
                          const MlaCache &cache, Rows out) {
  gpu::LatentArgs a = {q.data,
                       kvB.data,
                       out.data,
                       reinterpret_cast<const gpu::PieceArgs *>(batch.pieces),
                       scratch.query,
                       scratch.lengths,
                       scratch.singles,
                       static_cast<int>(q.stride),
                       static_cast<int>(out.stride),
                       static_cast<int>(config.heads),
                       static_cast<int>(config.latentRank),
                       static_cast<int>(config.nopeDim),
                       static_cast<int>(config.ropeDim),
                       static_cast<int>(config.valueDim)};
  bool isUsual = limits.type == Element::BF16 && a.rank == 512 &&
                 a.rope == 64 && a.nope == 128 && a.value == 128; // Mla.cuh
  if (isUsual)
    launch("absorb_bf16", {{4, config.heads, batch.count}, 128}, a);
  else
    launch(typed("absorb_any_f32", "absorb_any_bf16"),
           {{config.heads, batch.count, 1}, 256}, a);
  setAttention(latentKernel->call, config, cache,
               {batch.count, scratch.query, batch.slots, scratch.lengths,
                scratch.singles, scratch.workspace});
  if (first.ok())
    first = latentKernel->kernel.launch(
        gpu->stream(), latentKernel->call.arguments(), /*overlap=*/true);
  if (isUsual)
    launch("leave_latents_bf16", {{config.heads, batch.count, 1}, 512}, a);
  else
    launch(typed("leave_any_f32", "leave_any_bf16"),
           {{config.heads, batch.count, 1}, 256}, a);
}

int64_t GpuOps::keyBlock() const {
  return std::min((limits.context + 63) / 64 * 64, limits.keyBlock);
}

/// Latent rows of the block's keys side by side, keys and values of all heads,
/// then the kernel.
void GpuOps::attendPrompt(const BatchView &batch, const PromptBlock &block,
                          Rows q, const Matrix &kvB, const MlaCache &cache,
                          Rows out) {
  int64_t rowBytes = config.cacheDim() * bytesOf(limits.type), at = 0;
  for (int64_t p = block.piece; p < block.piece + block.pieces; ++p) {
    const Piece &piece = pieces[static_cast<size_t>(p)];
    int64_t keys = block.pieces > 1 ? piece.past + piece.count : block.keys;
    launch("latents", {{keys, 1, 1}, 96}, cache.pages, cache.table,
           static_cast<long long>(cache.pageTokens),
           static_cast<long long>(cache.pagesPerSlot), piece.slot,
           static_cast<long long>(block.first), static_cast<int>(rowBytes / 16),
           scratch.latents + at * rowBytes);
    at += keys;
  }
  Rows latents = {scratch.latents, block.keys, config.latentRank,
                  config.cacheDim(), limits.type};
  PromptTensors t;
  t.q = q;
  t.out = out;
  t.expanded = {scratch.expanded, block.keys, kvB.out, kvB.out, limits.type};
  manyRows({latents, &kvB, t.expanded});
  t.shared = scratch.latents + config.latentRank * bytesOf(limits.type);
  t.offsets = batch.offsets + block.piece;
  t.keyOffsets = promptOffsets + block.offsets;
  t.averages = scratch.averages;
  t.logs = scratch.logs;
  setPrompt(promptKernel->call, config, block, t);
  if (first.ok())
    first = promptKernel->kernel.launch(
        gpu->stream(), promptKernel->call.arguments(), /*overlap=*/true);
}

void GpuOps::attend(const BatchView &batch, Rows q, const Matrix &kvB,
                    const MlaCache &cache, Rows out) {
  for (const PromptBlock &block : prompts.blocks)
    attendPrompt(batch, block, q, kvB, cache, out);
  if (std::any_of(pieces.begin(), pieces.end(),
                  [](const Piece &piece) { return piece.count == 1; }))
    attendSingle(batch, q, kvB, cache, out);
}

} // namespace kdac::model
