// Promises: functions of form prompt, which hold one dplr.prompt_attention, as
// a tile kernel. Does not: expand keys.
#ifndef KDAC_LIB_TRANSFORMS_PROMPTFORM_H
#define KDAC_LIB_TRANSFORMS_PROMPTFORM_H

#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

// Both emit a diagnostic and fail where the function has not exactly that op,
// on its arguments.

/// Writes the function's schedule on `target`; `keys`: of a turn, 0: the best.
/// Fails, too, where there is no such turn.
mlir::LogicalResult selectPrompt(mlir::func::FuncOp function,
                                 const Target &target, int64_t keys);

/// Builds the kernel in front of the function.
mlir::LogicalResult buildPrompt(mlir::func::FuncOp function);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_PROMPTFORM_H
