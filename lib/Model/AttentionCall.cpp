#include "AttentionCall.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace kdac::model {

/// The narrowest variant of `form` for values of up to `value` elements and
/// keys of up to `rest` more.
static StatusOr<const PackVariant *>
selectByWidths(const PackReader &pack, const Place &place, Form form,
               Element type, int64_t value, int64_t rest) {
  DType dtype = dtypeOf(type);
  // Which none may have: the error says what the pack has, or what would do.
  auto rounded = [](int64_t x) {
    return std::max<int64_t>(1, (x + pageKeys - 1) / pageKeys) * pageKeys;
  };
  Variant best;
  best.form = form;
  best.dtype = dtype;
  best.valueDim = rounded(value);
  best.keyDim = best.valueDim + rounded(rest);
  bool isFound = false;
  std::optional<Variant> widest;
  for (const PackVariant &v : pack.manifest().variants) {
    const Variant &has = v.variant;
    if (has.form != form || has.dtype != dtype ||
        place.fit(pack.manifest(), v.launches.front()) == 0)
      continue;
    if (!widest || has.keyDim > widest->keyDim)
      widest = has;
    bool fits = has.valueDim >= value && has.keyDim - has.valueDim >= rest;
    if (fits && (!isFound || has.keyDim < best.keyDim))
      best = has;
    isFound |= fits;
  }
  if (!isFound && widest) {
    best.target = widest->target;
    if (!resolve(best))
      return Status(ErrorCode::Unsupported,
                    variantName(*widest) +
                        " is the widest that the pack has; use a pack with " +
                        variantName(best));
  }
  Request request;
  request.options = {{"form", std::string(spell(form))},
                     {"dtype", std::string(spell(dtype))},
                     {"key-dim", std::to_string(best.keyDim)},
                     {"value-dim", std::to_string(best.valueDim)}};
  return selectVariant(pack, place, request);
}

StatusOr<const PackVariant *> selectAttention(const PackReader &pack,
                                              const Place &place,
                                              const ModelConfig &config,
                                              Element type) {
  StatusOr<const PackVariant *> found = selectByWidths(
      pack, place, Form::Attention, type, config.latentRank, config.ropeDim);
  if (!found.ok())
    return found.status().with(
        config.name + ": kv_lora_rank = " + std::to_string(config.latentRank) +
        " and qk_rope_head_dim = " + std::to_string(config.ropeDim));
  return found;
}

StatusOr<const PackVariant *> selectPrompt(const PackReader &pack,
                                           const Place &place,
                                           const ModelConfig &config,
                                           Element type) {
  StatusOr<const PackVariant *> found =
      selectByWidths(pack, place, Form::Prompt, type,
                     std::max(config.nopeDim, config.valueDim), config.ropeDim);
  if (!found.ok())
    return found.status().with(
        config.name + ": qk_nope_head_dim = " + std::to_string(config.nopeDim) +
        ", v_head_dim = " + std::to_string(config.valueDim) +
        " and qk_rope_head_dim = " + std::to_string(config.ropeDim));
  return found;
}

/// What the sizes of a call are, whatever its tensors.
static void setSizes(NamedCall &call, const ModelConfig &config,
                     int64_t count) {
  call.size("N", count);
  call.size("H", config.heads);
  call.size("D", config.cacheDim());
  call.size("R", config.latentRank);
}

void setAttention(NamedCall &call, const ModelConfig &config,
                  const MlaCache &cache, const LatentBatch &batch) {
  setSizes(call, config, batch.count);
  call.pointer("q", batch.query);
  call.pointer("pages", cache.pages);
  call.pointer("table", cache.table);
  call.pointer("slots", batch.slots);
  call.pointer("lengths", batch.lengths);
  call.pointer("out", batch.out);
  call.pointer("workspace", batch.workspace);
  call.size("P", cache.pageCount);
  call.size("S", cache.slots);
  call.size("table_pitch", cache.pagesPerSlot);
  call.scale("scale", 1 / std::sqrt(static_cast<float>(config.queryDim())));
}

StatusOr<int64_t> attentionWorkspaceBytes(NamedCall &call,
                                          const ModelConfig &config,
                                          int64_t pieces) {
  // Fewer sequences have more splits each: no count has the most for sure.
  int64_t most = 0;
  for (int64_t count = 1; count <= pieces; ++count) {
    setSizes(call, config, count);
    StatusOr<int64_t> bytes = call.workspaceBytes();
    if (!bytes.ok())
      return bytes;
    most = std::max(most, *bytes);
  }
  return most;
}

//===-- Prompts
//------------------------------------------------------------===//

void PromptPlan::make(const Piece *pieces, int64_t count, int64_t most) {
  blocks.clear();
  keyOffsets.clear();
  auto add = [&](PromptBlock block) {
    block.offsets = static_cast<int64_t>(keyOffsets.size());
    keyOffsets.push_back(0);
    blocks.push_back(block);
  };
  auto grow = [&](int64_t keys) {
    PromptBlock &block = blocks.back();
    block.keys += keys;
    keyOffsets.push_back(static_cast<int32_t>(block.keys));
  };
  bool joins = false; // the next piece may share the last block
  for (int64_t p = 0; p < count; ++p) {
    int64_t keys = pieces[p].past + pieces[p].count;
    if (pieces[p].count < 2) {
      joins = false;
      continue;
    }
    if (joins && blocks.back().keys + keys <= most) {
      PromptBlock &block = blocks.back();
      ++block.pieces;
      block.longest = std::max(block.longest, pieces[p].count);
      grow(keys);
      continue;
    }
    for (int64_t first = 0; first < keys; first += most) {
      int64_t own = std::min(most, keys - first);
      PromptBlock block;
      block.piece = p;
      block.pieces = 1;
      block.longest = pieces[p].count;
      block.first = first;
      block.later = keys - first - own;
      add(block);
      grow(own);
    }
    joins = keys <= most;
  }
}

int64_t PromptPlan::mostOffsets(int64_t pieces, int64_t context, int64_t most) {
  return 2 * pieces * std::max<int64_t>(1, (context + most - 1) / most);
}

void setPrompt(NamedCall &call, const ModelConfig &config,
               const PromptBlock &block, const PromptTensors &t) {
  call.rows("q", t.q);
  call.rows("kv", t.expanded);
  call.rows("out", t.out);
  call.pointer("shared", t.shared);
  call.size("shared_stride", config.cacheDim());
  call.pointer("offsets", t.offsets);
  call.pointer("key_offsets", t.keyOffsets);
  bool isFirst = block.first == 0, isLast = block.later == 0;
  call.pointer("before", isFirst ? nullptr : t.averages);
  call.pointer("before_logs", isFirst ? nullptr : t.logs);
  call.pointer("after", isLast ? nullptr : t.averages);
  call.pointer("after_logs", isLast ? nullptr : t.logs);
  call.size("N", block.pieces);
  call.size("H", config.heads);
  call.size("D", config.queryDim());
  call.size("R", config.ropeDim);
  call.size("E", config.valueDim);
  call.size("T", block.longest);
  call.size("later", block.later);
  call.scale("scale", 1 / std::sqrt(static_cast<float>(config.queryDim())));
}

} // namespace kdac::model
