// Promises: places the values of a kernel whose roles are warps.
// Does not: check limits, which tile-place does for all kernels.
#ifndef KDAC_LIB_TRANSFORMS_PLACEROLES_H
#define KDAC_LIB_TRANSFORMS_PLACEROLES_H

#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// Writes tile.place on every op with tiles, and tile.scratch, tile.barriers,
/// kdac.shared_bytes and kdac.block_threads on the kernel.
void placeRoles(mlir::func::FuncOp kernel);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_PLACEROLES_H
