// Promises: which ops of a chunk loop depend on the carried state.
// Does not: move, place or lower them.
#ifndef KDAC_LIB_TRANSFORMS_ROLES_H
#define KDAC_LIB_TRANSFORMS_ROLES_H

#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseSet.h"

namespace kdac {

/// The ops of `loop` that run along the state: the forward slice of its carried
/// tiles, and what belongs to one slice of V, for prepare works for all slices.
llvm::DenseSet<mlir::Operation *> chainOf(mlir::func::FuncOp kernel,
                                          mlir::scf::ForOp loop);

/// True if `op` is made again where it is needed rather than passed on.
bool isMadeAgain(mlir::Operation *op);

/// Writes `tile.role` on every op with a tile in the chunk loop of `kernel`.
void markRoles(mlir::func::FuncOp kernel);

/// The tiles that pass from the prepare role to the chain of a marked loop, in
/// program order.
llvm::SmallVector<mlir::Value> passedOn(mlir::scf::ForOp loop);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_ROLES_H
