// Promises: the loops of tile.check_slots on pointers and i64 numbers, for
// either exit.
// Does not: know threads; a caller gives each the sequences it looks at.
#ifndef KDAC_LIB_CONVERSION_SLOTCHECK_H
#define KDAC_LIB_CONVERSION_SLOTCHECK_H

#include "kdac/Dialect/Tile.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace kdac {

/// Operands of a tile.check_slots as LLVM values: pointers, and i64 sizes.
struct SlotCheck {
  using Value = mlir::Value;
  Value status, slots, sources, snapshots, offsets; ///< snapshots may be null
  Value count, tokens, pool;
  mlir::Type slotType, offsetType; ///< integers in memory
};

/// Lowers a tile.check_slots, its operands given by `lookup`.
SlotCheck slotCheckOf(tile::CheckSlotsOp op,
                      llvm::function_ref<mlir::Value(mlir::Value)> lookup);

/// Sets the status to -1: by one thread, before any emitSlotCheck.
void emitStatusReset(mlir::ImplicitLocOpBuilder &b, const SlotCheck &check);

/// Checks the entries first, first + step, ...: an atomic minimum leaves the
/// smallest word in the status.
void emitSlotCheck(mlir::ImplicitLocOpBuilder &b, const SlotCheck &check,
                   mlir::Value first, mlir::Value step);

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_SLOTCHECK_H
