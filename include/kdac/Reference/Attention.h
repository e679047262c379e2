// Promises: attention to a paged cache of latent rows, and of prompts to
// expanded keys, in f64, in obvious code: the oracles of their kernels. Does
// not: round anything.
#ifndef KDAC_REFERENCE_ATTENTION_H
#define KDAC_REFERENCE_ATTENTION_H

#include "kdac/Reference/Reference.h"

#include <functional>

namespace kdac::reference {

/// Everything that a call of form attention reads.
struct AttentionOperands {
  Rows q;     ///< (sequence, head): [width]
  Rows pages; ///< (row of all pages, 0): [width]
  int64_t sequences = 0, heads = 1;
  int64_t width = 0, values = 0; ///< D and R
  int64_t pageCount = 0, pageRows = 0;
  int64_t slotCount = 0, tablePitch = 0;
  std::vector<int64_t> table;   ///< [slotCount, tablePitch]
  std::vector<int64_t> slots;   ///< [sequences]; empty: their numbers
  std::vector<int64_t> lengths; ///< [sequences]
  double scale = 1.0;
};

/// What follows from the sizes of a call: N, H, D, R, P, S and table_pitch.
AttentionOperands
operandsOfSizes(const std::function<int64_t(const char *)> &size);

/// `out` is [sequences, heads, values].
Results runAttention(const AttentionOperands &operands, int threads = 0);

/// Everything that a call of form prompt reads.
struct PromptOperands {
  Rows q;                  ///< (row, head): [width]
  Rows kv;                 ///< (key, head): [width - shared + values]
  Rows shared;             ///< (key, 0): [sharedWidth]
  Rows before, beforeLogs; ///< (row, head): [values], [1]; or none
  std::vector<int64_t> offsets, keyOffsets; ///< [sequences + 1]
  int64_t heads = 1;
  int64_t width = 0, sharedWidth = 0, values = 0; ///< D, R and E
  int64_t later = 0; ///< keys that follow in other calls
  double scale = 1.0;
};

/// `out` is [rows, heads, values], which is what `after` holds as well; `logs`
/// is [rows, heads].
Results runPrompt(const PromptOperands &operands, int threads = 0);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_ATTENTION_H
