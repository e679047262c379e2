// Promises: the table of named recurrences, one row each
// (docs/ADDING_A_RECURRENCE.md). Does not: know about chunks, targets or
// dtypes.
#ifndef KDAC_VARIANT_RECURRENCE_H
#define KDAC_VARIANT_RECURRENCE_H

#include <string_view>
#include <vector>

namespace kdac {

/// How the state decays before each write.
enum class Decay {
  None,         ///< S is not decayed.
  HeadConstant, ///< one log-decay per value head, [HV], the same for all
                ///< tokens.
  Head,         ///< one log-decay per token and value head, [T, HV].
  Channel,      ///< one log-decay per token, head and key channel, [T, HV, K].
};

/// The rank-one part of the transition.
enum class Erase {
  None,  ///< S' = D S + k v^T.
  Delta, ///< S' = (I - beta k k^T) D S + beta k v^T: the erase reads the
         ///< decayed state.
  Pair,  ///< S' = (D + a b^T) S + k v^T: b reads the undecayed state.
};

/// How raw gate logits become a natural-log decay.
enum class Gate {
  None,     ///< there is no decay operand.
  Identity, ///< the operand is the log-decay itself.
  Softplus, ///< -exp(A_log) * softplus(g + dt_bias); unbounded.
  Bounded,  ///< lower_bound * sigmoid(exp(A_log) * (g + dt_bias)).
};

/// How the write-strength operand becomes beta.
enum class Beta {
  None,       ///< beta = 1, no operand.
  Identity,   ///< the operand is beta.
  Sigmoid,    ///< sigmoid(operand).
  TwoSigmoid, ///< 2 * sigmoid(operand): negative eigenvalues allowed.
};

/// One row of the family: which operands exist, and the defaults of a variant.
struct Recurrence {
  std::string_view name;    ///< as spelled in variant names and flags
  std::string_view summary; ///< the equation, for `kdac list`
  Decay decay;
  Erase erase;
  Gate gate;   ///< default gate map
  Beta beta;   ///< default write strength; None: the recurrence has no beta
  bool l2norm; ///< default: q and k are normalised in the kernel
};

/// All rows, in the order shown to users.
const std::vector<Recurrence> &recurrences();

/// The row called `name`, or null.
const Recurrence *findRecurrence(std::string_view name);

} // namespace kdac

#endif // KDAC_VARIANT_RECURRENCE_H
