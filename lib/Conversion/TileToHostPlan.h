// Promises: where every tile value of a kernel lives on the host, decided once:
// recomputed inside its consumers' loops, or in a buffer of the thread's
// scratch. Does not: emit code.
#ifndef KDAC_CONVERSION_TILETOHOSTPLAN_H
#define KDAC_CONVERSION_TILETOHOSTPLAN_H

#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseMap.h"

namespace kdac::host {

/// One tile in scratch. Elements are f32 whatever the tile's float type: bf16,
/// f16 and tf32 values are exact in f32, and rounding happens in arith.truncf.
struct Buffer {
  int64_t rows = 1, cols = 1;
  int64_t pitch = 1;           // elements between rows
  int64_t first = 0, last = 0; // live from op `first` to op `last`, inclusive
  int64_t offset = 0;          // bytes into scratch

  int64_t bytes() const;
};

/// True when the op computes every element from the same element of its tiles.
bool isPointwise(mlir::Operation *op);

/// The tile type of a value that is a tile, else null.
mlir::RankedTensorType tileType(mlir::Value value);

/// The largest power of two, at most `width`, that divides `size`.
int64_t lanesFor(int64_t size, int64_t width);

/// The decisions for one kernel. Ops are numbered in program order; a buffer's
/// life is an interval of these numbers, and buffers with disjoint lives share
/// bytes.
class Plan {
public:
  explicit Plan(mlir::func::FuncOp kernel);

  /// The buffer of `value`, or null when it is inline.
  const Buffer *buffer(mlir::Value value) const;
  /// Working space of an op: scaled factors, transposed copies.
  llvm::ArrayRef<unsigned> temporaries(mlir::Operation *op) const;
  const Buffer &buffer(unsigned index) const { return buffers[index]; }

  int64_t scratchBytes() const { return totalBytes; }

private:
  void number(mlir::func::FuncOp kernel);
  bool mustBuffer(mlir::Operation *op, mlir::Value result, int64_t cost) const;
  bool crossesStore(mlir::Operation *load) const;
  void place(mlir::Operation *op);
  void placeLoop(mlir::scf::ForOp loop);
  void shareCarried(mlir::scf::ForOp loop);
  void placeTemporaries(mlir::Operation *op);
  bool canUpdateInPlace(mlir::Value carried, mlir::Operation *update) const;
  void setLives();
  void assignOffsets();
  unsigned addBuffer(int64_t rows, int64_t cols);
  unsigned addBuffer(mlir::RankedTensorType type);
  int64_t costOf(mlir::Value value) const;
  int64_t endOf(mlir::Operation *op) const;

  /// Calls `visit(root, pointwise)` for every op whose code reads `value`,
  /// directly or through inline values.
  void
  forEachRead(mlir::Value value, bool pointwise,
              llvm::function_ref<void(mlir::Operation *, bool)> visit) const;
  /// The number of the last op that `root` delays the death of `value` to.
  int64_t readEnd(mlir::Value value, mlir::Operation *root) const;

  llvm::DenseMap<mlir::Operation *, int64_t> order;
  llvm::DenseMap<mlir::Value, unsigned> bufferOf;
  llvm::DenseMap<mlir::Value, int64_t> costs;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned>> temps;
  llvm::SmallVector<mlir::Operation *> stores;
  llvm::SmallVector<Buffer> buffers;
  int64_t totalBytes = 0;
};

} // namespace kdac::host

#endif // KDAC_CONVERSION_TILETOHOSTPLAN_H
