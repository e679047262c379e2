// Promises: calls of a pack's kernels of forms attention, on the pages of MLA
// layers, and prompt, on expanded keys, for host and GPU alike. Does not:
// absorb queries, leave the latent space, expand keys, or know how a kernel is
// launched.
#ifndef KDAC_LIB_MODEL_ATTENTIONCALL_H
#define KDAC_LIB_MODEL_ATTENTIONCALL_H

#include "NamedCall.h"

namespace kdac::model {

/// The variants of `pack` for the config's cached rows, and for its expanded
/// keys, of `type`, and hardly wider ones.
StatusOr<const PackVariant *> selectAttention(const PackReader &pack,
                                              const Place &place,
                                              const ModelConfig &config,
                                              Element type);
StatusOr<const PackVariant *> selectPrompt(const PackReader &pack,
                                           const Place &place,
                                           const ModelConfig &config,
                                           Element type);

/// Single tokens of a batch in the latent space.
struct LatentBatch {
  int64_t count = 0;
  const void *query = nullptr;      ///< [count, heads, rank + rope]
  const int32_t *slots = nullptr;   ///< [count]
  const int32_t *lengths = nullptr; ///< [count]: keys; 0: not a single token
  void *out = nullptr;              ///< [count, heads, rank]
  void *workspace = nullptr;
};

void setAttention(NamedCall &call, const ModelConfig &config,
                  const MlaCache &cache, const LatentBatch &batch);

/// Scratch that is enough for every call of up to so many pieces.
StatusOr<int64_t> attentionWorkspaceBytes(NamedCall &call,
                                          const ModelConfig &config,
                                          int64_t pieces);

//===-- Prompts
//------------------------------------------------------------===//

/// Keys that are expanded together: all of several pieces, or some of one.
struct PromptBlock {
  int64_t piece = 0, pieces = 0; ///< the first, and how many
  int64_t longest = 0;           ///< rows of the longest
  int64_t first = 0;             ///< of one piece: keys in blocks before
  int64_t keys = 0;              ///< of all pieces, or of one in this block
  int64_t later = 0;             ///< of one piece: keys in blocks to come
  int64_t offsets = 0;           ///< where [pieces + 1] are in keyOffsets
};

/// The pieces of a call that are longer than a token, block by block, each of
/// up to `most` keys.
struct PromptPlan {
  std::vector<PromptBlock> blocks;
  std::vector<int32_t> keyOffsets;

  void make(const Piece *pieces, int64_t count, int64_t most);
  /// The most keyOffsets of calls of so many pieces and keys of each.
  static int64_t mostOffsets(int64_t pieces, int64_t context, int64_t most);
};

/// Tensors of a call; rows of all pieces, in the batch's order.
struct PromptTensors {
  Rows q, expanded, out;
  const void *shared = nullptr; ///< a key's, the config's cacheDim apart
  const int32_t *offsets = nullptr, *keyOffsets = nullptr; ///< of the block
  float *averages = nullptr, *logs = nullptr; ///< between blocks of one piece
};

void setPrompt(NamedCall &call, const ModelConfig &config,
               const PromptBlock &block, const PromptTensors &tensors);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_ATTENTIONCALL_H
