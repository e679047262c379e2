// Promises: dplr.recurrence and the maps around it in f64, token by token, in
// obvious code: the oracle of every kernel.
// Does not: know about chunks, targets, MLIR, or round anything.
#ifndef KDAC_REFERENCE_REFERENCE_H
#define KDAC_REFERENCE_REFERENCE_H

#include "kdac/Variant/Variant.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace kdac::reference {

/// Writes the f64 values of row (token, head) of a sequence tensor
/// [tokens, heads, width]. For states the "token" is the sequence and the row
/// the whole matrix. Must be callable from many threads.
using Rows = std::function<void(int64_t token, int64_t head, double *row)>;

/// dplr.l2norm: x / sqrt(sum x^2 + eps), per row of `width`.
Rows l2norm(Rows x, int64_t width, double eps = 1e-6);

/// How dplr.log_decay maps logits. A_log and dt_bias are absent when empty.
struct GateMap {
  Gate gate = Gate::Identity; ///< Identity, Softplus or Bounded
  Rows aLog;                  ///< [1, HV, 1]
  Rows dtBias;                ///< [1, HV, width]
  double bound = -5.0;        ///< of Bounded
};

/// dplr.log_decay: natural-log decay per row of `width` (K, or 1 per head).
/// kda-operator.md 2.2, with the exact tail of softplus and with 0 times an
/// overflowed exp(A_log) taken as 0.
Rows logDecay(GateMap map, Rows logits, int64_t width);

/// dplr.write_strength: beta of one logit per row.
Rows writeStrength(Beta map, Rows logits);

/// What dplr.short_conv reads.
struct ShortConv {
  Rows input;  ///< [tokens, heads, width]
  Rows weight; ///< [1, heads, width * taps], taps of a channel together
  int64_t width = 1, taps = 4;
  std::vector<int64_t> offsets; ///< as in Operands
  /// The `width` inputs of a sequence and head `back` tokens before its first,
  /// 1 to taps - 1. Empty: zeros.
  std::function<void(int64_t sequence, int64_t head, int64_t back, double *)>
      before;
};

/// dplr.short_conv with its SiLU: rows [tokens, heads, width].
Rows shortConv(ShortConv conv);

/// What dplr.gated_rmsnorm does to an output row.
struct GatedNorm {
  OutputNorm activation = OutputNorm::None;
  Rows gate;   ///< [tokens, HV, V]
  Rows weight; ///< [1, 1, V]
  double eps = 1e-5;
};

/// dplr.gated_rmsnorm of one row of `width` elements, in place.
void gateRow(const GatedNorm &norm, int64_t token, int64_t head, double *row,
             int64_t width);

/// Everything dplr.recurrence reads. An empty Rows is an absent operand.
struct Operands {
  int64_t heads = 1;      ///< H
  int64_t valueHeads = 1; ///< HV, a multiple of H
  int64_t keyDim = 1;     ///< K
  int64_t valueDim = 1;   ///< V
  /// Sequence n is tokens offsets[n] .. offsets[n + 1]; N + 1 entries.
  std::vector<int64_t> offsets;
  Rows q, k;  ///< [tokens, H, K]
  Rows v;     ///< [tokens, HV, V]
  Rows decay; ///< natural log; [tokens, HV, K] if perChannel, else [., HV, 1]
  bool perChannel = false;
  Rows beta; ///< [tokens, HV, 1]; absent: 1
  bool delta = false;
  Rows a, b;    ///< general erase pair, [tokens, H, K]
  Rows initial; ///< [N, HV, matrix] in `layout`; absent: 0
  StateLayout layout = StateLayout::VK;
  double scale = 1.0;
  /// Sequences of a pool without a slot: output and state 0, nothing is read.
  /// Empty: none.
  std::vector<bool> skipped;
  GatedNorm norm;       ///< of the output; not of the recurrence itself
  bool keepAll = false; ///< return the state after every token
  /// Tokens after which the final state of each sequence is taken. Empty: all.
  std::vector<int64_t> accepted;
};

/// What dplr.recurrence returns.
struct Results {
  std::vector<double> out;        ///< [offsets.back(), HV, V]
  std::vector<double> finalState; ///< [N, HV, V, K] or [N, HV, K, V]
  std::vector<double> states;     ///< [offsets.back(), HV, ...] if keepAll
  std::vector<double> logs;       ///< of form prompt
};

/// Runs the recurrence, one (sequence, value head) a work item. Tokens outside
/// every sequence have output 0.
Results run(const Operands &operands, int threads = 0);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_REFERENCE_H
