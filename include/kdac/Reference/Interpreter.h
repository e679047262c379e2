// Promises: runs a dplr function op by op in f64, with the oracle's maps and
// recurrence: what the IR means, as opposed to what its author meant.
// Does not: interpret any other dialect, or round results to their types.
#ifndef KDAC_REFERENCE_INTERPRETER_H
#define KDAC_REFERENCE_INTERPRETER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdint>
#include <vector>

namespace kdac::reference {

/// A function argument: elements of the argument's type, contiguous in `shape`.
/// Null data means an absent optional argument (h0, offsets, A_log, dt_bias);
/// its shape still counts: that of h0 gives the number of dense sequences. A
/// scalar has an empty shape and points to a float.
struct InterpreterArgument {
  const void *data = nullptr;
  std::vector<int64_t> shape;
};

/// A function result in f64, contiguous.
struct InterpreterResult {
  std::vector<double> data;
  std::vector<int64_t> shape;
};

/// Interprets a function of one block of dplr ops. Fails with a diagnostic on
/// other ops, on arguments that do not fit their types, and on shapes that do
/// not fit each other.
mlir::FailureOr<std::vector<InterpreterResult>>
interpretDplr(mlir::func::FuncOp function,
              llvm::ArrayRef<InterpreterArgument> arguments);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_INTERPRETER_H
