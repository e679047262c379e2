// Promises: the subset of Triton IR that kdac prints as C++ classes
// (dialect/Triton/SPEC.md is its meaning). Does not: lower anything, or need
// Triton.
#ifndef KDAC_DIALECT_TRITON_H
#define KDAC_DIALECT_TRITON_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace kdac::tt {
/// The most elements of one tensor.
inline constexpr int64_t kMaxElements = 1 << 20;

/// What is read through a pointer or a tensor of pointers.
mlir::Type pointeeOf(mlir::Type pointer);
/// i1 for every pointer.
mlir::Type maskOf(mlir::Type pointer);

/// Checks that every tensor has a power of two of elements, up to kMaxElements.
mlir::LogicalResult verifyTensorSize(mlir::Operation *op);

template <typename Op>
class TensorSize : public mlir::OpTrait::TraitBase<Op, TensorSize> {
public:
  static mlir::LogicalResult verifyTrait(mlir::Operation *op) {
    return verifyTensorSize(op);
  }
};
} // namespace kdac::tt

#include "kdac/Dialect/TritonDialect.h.inc"
#include "kdac/Dialect/TritonEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "kdac/Dialect/TritonTypes.h.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/TritonOps.h.inc"

#endif // KDAC_DIALECT_TRITON_H
