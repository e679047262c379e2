// Promises: the dplr dialect as C++ classes (dialect/Dplr/SPEC.md is its
// meaning). Does not: lower anything.
#ifndef KDAC_DIALECT_DPLR_H
#define KDAC_DIALECT_DPLR_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "kdac/Dialect/DplrDialect.h.inc"
#include "kdac/Dialect/DplrEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "kdac/Dialect/DplrAttrs.h.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/DplrOps.h.inc"

#endif // KDAC_DIALECT_DPLR_H
