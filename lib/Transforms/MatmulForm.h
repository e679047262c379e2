// Promises: functions of form matmul, which hold one dplr.grouped_matmul, as a
// tile kernel. Does not: sort rows by group.
#ifndef KDAC_LIB_TRANSFORMS_MATMULFORM_H
#define KDAC_LIB_TRANSFORMS_MATMULFORM_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// True if the function's dplr.form is matmul.
bool isMatmulForm(mlir::func::FuncOp function);

/// The op of such a function; emits a diagnostic and fails where it has not
/// exactly one, on its arguments.
mlir::FailureOr<dplr::GroupedMatmulOp> matchMatmul(mlir::func::FuncOp f);

/// How the kernel runs, and how where a call has fewer programs than a GPU
/// multiprocessors, if otherwise.
struct MatmulSchedules {
  tile::ScheduleAttr usual, few;
};

/// The schedules on `target`; `columns`: of the result and of one program, 0:
/// the best. Emits a diagnostic and fails where there is no such program.
mlir::FailureOr<MatmulSchedules>
chooseMatmul(dplr::GroupedMatmulOp op, const Target &target, int64_t columns);

/// Builds the kernels in front of `source`.
void buildMatmul(mlir::func::FuncOp source, dplr::GroupedMatmulOp op,
                 const MatmulSchedules &schedules);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_MATMULFORM_H
