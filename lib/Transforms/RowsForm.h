// Promises: functions of form rows, which hold one op on rows of one width, as
// tile kernels. Does not: know recurrences, or the rows beside them
// (LayerRows.cpp).
#ifndef KDAC_LIB_TRANSFORMS_ROWSFORM_H
#define KDAC_LIB_TRANSFORMS_ROWSFORM_H

#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

// Both emit a diagnostic and fail where the function has not exactly one op, on
// its arguments.

/// Writes how the kernel runs on `target`.
mlir::LogicalResult selectRows(mlir::func::FuncOp function,
                               const Target &target);

/// Builds the kernel in front of the function.
mlir::LogicalResult buildRows(mlir::func::FuncOp function);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ROWSFORM_H
