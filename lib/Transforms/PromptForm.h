// Promises: functions of form prompt, which hold one dplr.prompt_attention, as
// a tile kernel. Does not: expand keys.
#ifndef KDAC_LIB_TRANSFORMS_PROMPTFORM_H
#define KDAC_LIB_TRANSFORMS_PROMPTFORM_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// True if the function's dplr.form is prompt.
bool isPromptForm(mlir::func::FuncOp function);

/// The op of such a function; emits a diagnostic and fails where it has not
/// exactly one, on its arguments.
mlir::FailureOr<dplr::PromptAttentionOp> matchPrompt(mlir::func::FuncOp f);

/// How the kernel runs on `target`; `chunk`: keys of a turn, 0: the best. Emits
/// a diagnostic and fails where there is no such turn.
mlir::FailureOr<tile::ScheduleAttr>
choosePrompt(dplr::PromptAttentionOp op, const Target &target, int64_t chunk);

/// Builds the kernel in front of `source`.
void buildPrompt(mlir::func::FuncOp source, dplr::PromptAttentionOp op,
                 tile::ScheduleAttr schedule);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_PROMPTFORM_H
