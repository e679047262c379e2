// Promises: the element types of variants as those of the IR, and back.
// Does not: say which of them an operand may have.
#ifndef KDAC_DIALECT_ELEMENTTYPE_H
#define KDAC_DIALECT_ELEMENTTYPE_H

#include "kdac/Variant/Variant.h"
#include "mlir/IR/Builders.h"

namespace kdac {

inline mlir::Type elementType(mlir::MLIRContext *context, DType dtype) {
  mlir::Builder b(context);
  switch (dtype) {
  case DType::BF16:
    return b.getBF16Type();
  case DType::F16:
    return b.getF16Type();
  case DType::F32:
    return b.getF32Type();
  case DType::I32:
    return b.getI32Type();
  case DType::I64:
    return b.getI64Type();
  case DType::I8:
    return b.getI8Type();
  }
  llvm_unreachable("covered switch");
}

/// Of the floating point types that rows can have.
inline DType floatDType(mlir::Type element) {
  return element.isBF16()  ? DType::BF16
         : element.isF16() ? DType::F16
                           : DType::F32;
}

} // namespace kdac

#endif // KDAC_DIALECT_ELEMENTTYPE_H
