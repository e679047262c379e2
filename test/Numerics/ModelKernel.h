// Promises: the chunk and step forms in plain f32 with the roundings of a
// kernel: what the tolerance table is derived from, and a kernel to test the
// checker with. Does not: run fast.
#ifndef KDAC_TEST_NUMERICS_MODELKERNEL_H
#define KDAC_TEST_NUMERICS_MODELKERNEL_H

#include "kdac/Reference/Check.h"

namespace kdac::reference {

/// What product operands are rounded to.
enum class OperandType { F32, TF32, F16, BF16 };

/// How the model computes.
struct ModelOptions {
  int64_t chunk = 64;
  OperandType operand = OperandType::F32;
  /// The diagonals of triangular products stay f32, and the last chunk adds to
  /// the state what rounding leaves out of W.
  bool refined = false;
};

/// Runs the case's form. Supports every recurrence in the step form, all but
/// the erase pair in the chunk form.
std::optional<std::string> runModel(Case &c, const ModelOptions &options = {});

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_MODELKERNEL_H
