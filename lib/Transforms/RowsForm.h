// Promises: functions of form rows, which hold one op on rows of one width, as
// tile kernels. Does not: know recurrences, or the rows beside them
// (LayerRows.cpp).
#ifndef KDAC_LIB_TRANSFORMS_ROWSFORM_H
#define KDAC_LIB_TRANSFORMS_ROWSFORM_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// True if the function's dplr.form is rows.
bool isRowsForm(mlir::func::FuncOp function);

/// The op of such a function; emits a diagnostic and fails where it has not
/// exactly one, on its arguments.
mlir::FailureOr<mlir::Operation *> matchRows(mlir::func::FuncOp function);

/// How its kernel runs on `target`.
tile::ScheduleAttr chooseRows(mlir::Operation *op, const Target &target);

/// Builds the kernel in front of `source`.
void buildRows(mlir::func::FuncOp source, mlir::Operation *op,
               tile::ScheduleAttr schedule);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ROWSFORM_H
