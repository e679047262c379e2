// Promises: calls of a pack's kernel of form attention on the pages of MLA
// layers, for host and GPU alike. Does not: absorb queries, leave the latent
// space, or know how a kernel is launched.
#ifndef KDAC_LIB_MODEL_ATTENTIONCALL_H
#define KDAC_LIB_MODEL_ATTENTIONCALL_H

#include "NamedCall.h"

namespace kdac::model {

/// The variant of `pack` for the config's cached rows, of `type`, and hardly
/// wider ones.
StatusOr<const PackVariant *> selectAttention(const PackReader &pack,
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

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_ATTENTIONCALL_H
