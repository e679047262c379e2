// Promises: functions of forms that hold one dplr op, recognised.
#ifndef KDAC_LIB_TRANSFORMS_ONLYOP_H
#define KDAC_LIB_TRANSFORMS_ONLYOP_H

#include "kdac/Dialect/Dplr.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// True if the function's dplr.form is `form`.
inline bool hasForm(mlir::func::FuncOp function, dplr::Form form) {
  auto attr = function->getAttrOfType<dplr::FormAttr>("dplr.form");
  return attr && attr.getValue() == form;
}

/// The op of a function that holds one `OpT` and nothing else; else emits a
/// diagnostic and fails.
template <typename OpT>
mlir::FailureOr<OpT> matchOnly(mlir::func::FuncOp function, dplr::Form form) {
  auto ops = function.getBody().front().without_terminator();
  auto count = std::distance(ops.begin(), ops.end());
  if (count == 1)
    if (auto op = mlir::dyn_cast<OpT>(*ops.begin()))
      return op;
  return function.emitOpError()
         << "expected one " << OpT::getOperationName() << " with form "
         << dplr::stringifyForm(form) << ", but got " << count << " ops";
}

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ONLYOP_H
