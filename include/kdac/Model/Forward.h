// Promises: one forward call of a hybrid model over a batch of pieces of
// sequences, as a list of operations. Does not: choose tokens, or own weights.
#ifndef KDAC_MODEL_FORWARD_H
#define KDAC_MODEL_FORWARD_H

#include "kdac/Model/Session.h"

namespace kdac::model {

/// What to feed: pieces of sequences, packed one after the other. A piece may
/// be a whole prompt, a part of one, or one new token; `past` and `begin` are
/// filled in by the call.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<Piece> pieces;
  /// Rows of `tokens` whose logits are wanted; at most as many as slots.
  std::vector<int32_t> outputs;

  /// Appends a piece; its last row's logits are wanted, or none.
  void add(int32_t slot, const int32_t *begin, int64_t count,
           bool wantsLogits = true);
};

/// Runs the batch: every sequence continues from what its slot has and is
/// longer afterwards. Returns logits [outputs, vocab], which live in the
/// session's memory until the next call, as does their argmax
/// (Activations::best). Bad batches are refused before anything
/// changes.
StatusOr<Rows> forward(const ModelConfig &config, const Weights &weights,
                       Ops &ops, Session &session, const Batch &batch);

} // namespace kdac::model

#endif // KDAC_MODEL_FORWARD_H
