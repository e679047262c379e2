// Promises: functions of form matmul, which hold one dplr.grouped_matmul, as
// tile kernels. Does not: sort rows by group.
#ifndef KDAC_LIB_TRANSFORMS_MATMULFORM_H
#define KDAC_LIB_TRANSFORMS_MATMULFORM_H

#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

// Both emit a diagnostic and fail where the function has not exactly that op,
// on its arguments.

/// Writes the function's schedules on `target`: how the kernel runs, and how
/// where a call has fewer programs than a GPU multiprocessors, if otherwise.
/// `columns`: of the result and of one program, 0: the best. Fails, too, where
/// there is no such program.
mlir::LogicalResult selectMatmul(mlir::func::FuncOp function,
                                 const Target &target, int64_t columns);

/// Builds the kernels in front of the function.
mlir::LogicalResult buildMatmul(mlir::func::FuncOp function);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_MATMULFORM_H
