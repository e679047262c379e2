// Promises: placements of kernels whose warpgroups multiply turns of a loop
// (roles = "warpgroups"). Does not: place any other kernel.
#ifndef KDAC_LIB_TRANSFORMS_PLACETURNS_H
#define KDAC_LIB_TRANSFORMS_PLACETURNS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// Writes tile.place on every op of `kernel` and kdac.shared_bytes on it.
void placeTurns(mlir::func::FuncOp kernel);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_PLACETURNS_H
