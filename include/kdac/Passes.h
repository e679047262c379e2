// Promises: constructors and registration of every kdac pass (Passes.td).
// Does not: order them; include/kdac/Pipeline/Pipeline.h does.
#ifndef KDAC_PASSES_H
#define KDAC_PASSES_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Dialect/Triton.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace kdac {
#define GEN_PASS_DECL
#include "kdac/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "kdac/Passes.h.inc"
} // namespace kdac

#endif // KDAC_PASSES_H
