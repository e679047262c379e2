// Promises: functions of form attention, which hold one dplr.latent_attention,
// as two tile kernels. Does not: absorb queries or leave the latent space.
#ifndef KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H
#define KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// True if the function's dplr.form is attention.
bool isAttentionForm(mlir::func::FuncOp function);

/// The op of such a function; emits a diagnostic and fails where it has not
/// exactly one, on its arguments.
mlir::FailureOr<dplr::LatentAttentionOp>
matchAttention(mlir::func::FuncOp function);

/// How the kernel that goes through the keys runs on `target`; `chunk`: keys of
/// a turn, 0: the best. Emits a diagnostic and fails where there is no such
/// turn.
mlir::FailureOr<tile::ScheduleAttr> chooseAttention(dplr::LatentAttentionOp op,
                                                    const Target &target,
                                                    int64_t chunk);

/// Builds the kernels in front of `source`: the one that goes through the keys,
/// and the one that joins its programs' shares.
void buildAttention(mlir::func::FuncOp source, dplr::LatentAttentionOp op,
                    tile::ScheduleAttr schedule);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ATTENTIONFORM_H
