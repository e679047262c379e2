// Promises: functions of forms that hold one dplr op: that op, and the schedule
// that was chosen for it. Does not: know what it computes.
#ifndef KDAC_LIB_TRANSFORMS_ONLYOP_H
#define KDAC_LIB_TRANSFORMS_ONLYOP_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// The op of a function that holds one `OpT` and nothing else; else emits a
/// diagnostic and fails.
template <typename OpT>
mlir::FailureOr<OpT> onlyOp(mlir::func::FuncOp function) {
  auto ops = function.getBody().front().without_terminator();
  auto count = std::distance(ops.begin(), ops.end());
  if (count == 1)
    if (auto op = mlir::dyn_cast<OpT>(*ops.begin()))
      return op;
  auto form = function->getAttrOfType<dplr::FormAttr>("dplr.form");
  return function.emitOpError()
         << "expected one " << OpT::getOperationName() << " with form "
         << dplr::stringifyForm(form.getValue()) << ", but got " << count
         << " ops";
}

/// The schedule that dplr-select-schedule wrote.
inline tile::ScheduleAttr scheduleOf(mlir::func::FuncOp function) {
  return function->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
}

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ONLYOP_H
