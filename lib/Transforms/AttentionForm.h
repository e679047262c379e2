// Promises: functions of form attention, which hold one dplr.latent_attention,
// as two tile kernels. Does not: absorb queries or leave the latent space.
#ifndef KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H
#define KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H

#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

// Both emit a diagnostic and fail where the function has not exactly that op,
// on its arguments.

/// Writes how the kernel that goes through the keys runs on `target`; `keys`:
/// of a turn, 0: the best. Fails, too, where there is no such turn.
mlir::LogicalResult selectAttention(mlir::func::FuncOp function,
                                    const Target &target, int64_t keys);

/// Builds the kernels in front of the function: the one that goes through the
/// keys, and the one that joins its programs' shares.
mlir::LogicalResult buildAttention(mlir::func::FuncOp function);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H
