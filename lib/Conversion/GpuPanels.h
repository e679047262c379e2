// Promises: tiles in panels of shared memory (tile.place), which wgmma reads:
// their copies, buffers and descriptors. Does not: multiply.
#ifndef KDAC_LIB_CONVERSION_GPUPANELS_H
#define KDAC_LIB_CONVERSION_GPUPANELS_H

#include "GpuLowering.h"

namespace kdac {

/// What lowerings of loops share whose warpgroups multiply what cp.async
/// brought.
class PanelLowering {
protected:
  using Value = mlir::Value;
  using Values = GpuEmitter::Values;

  explicit PanelLowering(GpuLowering &at) : at(at), b(at.b) {}

  /// A tile of bf16 in panels, all of them whole.
  bool isInPanels(Value operand) const;
  /// A product whose rows the warps divide, as wide as one instruction, with a
  /// right side in panels.
  bool canMultiply(tile::DotOp dot) const;
  /// Bytes to the buffer of turn `number`; null: there is one.
  Value bufferOf(Value tile, Value number);
  /// How threads divide the copies of a tile.
  Layout copyLayout(tile::LoadOp load);
  /// 16 bytes a thread and turn, to their place in the panels; zeros where
  /// there is nothing. With `fetchesNext` what the next turn copies of the same
  /// rows comes to the L2, every other turn.
  void copy(tile::LoadOp load, const Layout &layout, Value buffer,
            bool fetchesNext = false);
  /// Makes what has arrived visible to products, and lets buffers be
  /// overwritten that everybody is done with.
  void meet(int64_t groupsLeft);
  /// Of an operand in panels; `rows`: bytes to the warpgroup's own.
  Value descriptor(Value operand, Value number, Value rows, int64_t leading);
  /// Adds the products of `left` and `right`, a step of columns of both, to
  /// `sums`, or starts with them if they are `fresh`.
  void startProduct(llvm::MutableArrayRef<Value> sums, tile::DotOp dot,
                    Value number, bool fresh);
  Value asIndex(Value number);
  /// The elements of a tile that this thread has.
  Values elements(Value tile);

  GpuLowering &at;
  GpuEmitter &b;
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUPANELS_H
