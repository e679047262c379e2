// Promises: the lowering of loops that carry nothing but sums of products
// (form matmul), by wgmma (roles = "warpgroups"). Does not: lower what is
// before and behind the loop.
#ifndef KDAC_LIB_CONVERSION_GPUMATMUL_H
#define KDAC_LIB_CONVERSION_GPUMATMUL_H

#include "GpuPanels.h"

namespace kdac {

class MatmulLowering : PanelLowering {
public:
  explicit MatmulLowering(GpuLowering &at) : PanelLowering(at) {}
  /// Lowers such a loop, or one around it.
  mlir::LogicalResult run(mlir::scf::ForOp loop);

private:
  mlir::LogicalResult match(mlir::scf::ForOp loop);
  void pickRows();
  void copyOf(Value number);
  void startCopies();
  void startProducts(Value number);
  void iterate(Value number);
  void runTurns();
  void exchange(llvm::MutableArrayRef<Value> words);
  void storePieces(tile::StoreOp op);
  void store(tile::StoreOp op);
  mlir::LogicalResult runParts(mlir::scf::ForOp parts);
  mlir::LogicalResult locate(mlir::scf::ForOp parts, Value number,
                             mlir::ValueRange known = {});
  Values known(mlir::scf::ForOp parts);
  void useRows(mlir::ValueRange known);

  mlir::scf::ForOp loop;
  llvm::SmallVector<tile::DotOp> dots; ///< one of each carried tile
  llvm::MapVector<mlir::Operation *, Layout> loads;
  Values sums;       ///< of all products, one after the other
  int64_t ahead = 0; ///< turns that copies are ahead of their products
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUMATMUL_H
