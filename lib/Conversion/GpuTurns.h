// Promises: the lowering of loops over keys whose warpgroups multiply by wgmma
// (roles = "warpgroups"). Does not: lower what is before and behind the loops.
#ifndef KDAC_LIB_CONVERSION_GPUTURNS_H
#define KDAC_LIB_CONVERSION_GPUTURNS_H

#include "GpuPanels.h"

namespace kdac {

class TurnLowering : PanelLowering {
public:
  explicit TurnLowering(GpuLowering &at) : PanelLowering(at) {}
  /// Lowers `first` and the loops behind it.
  mlir::LogicalResult run(mlir::scf::ForOp first);

private:
  /// A loop's turn: what makes scores, and what adds to the sums.
  struct Turn {
    mlir::scf::ForOp loop;
    llvm::SmallVector<tile::DotOp> scores; ///< each adds to the one before
    llvm::SmallVector<tile::LoadOp> keys;
    tile::LoadOp values;
    tile::DotOp sums;
    Value weights; ///< its left side
    Value factor;  ///< a number a row that the carried sums are multiplied with
    Value carried; ///< the loop's argument of the sums
  };
  /// Between the halves of a turn: registers of this thread.
  struct State {
    Values vectors; ///< what the loops carry of numbers a row
    Values sums;
    Values weights; ///< pairs, as products read them
    Values factor;
  };

  mlir::LogicalResult refuse(mlir::scf::ForOp loop);
  bool matchSums(Turn &turn);
  bool continues(mlir::scf::ForOp loop) const;
  mlir::LogicalResult match(mlir::scf::ForOp loop);
  void copyOf(llvm::ArrayRef<tile::LoadOp> loads, Value number);
  Values startScores(Value number);
  void startSums(State &state, Value number);
  void rescale(State &state);
  mlir::LogicalResult weigh(Turn &turn, Value number, const Values &scores,
                            State &state);
  Values takeFront(llvm::ArrayRef<Value> &from, Value tile);
  Values flat(const State &state);
  State unflat(llvm::ArrayRef<Value> all, const State &like);
  mlir::LogicalResult iterate(Turn &turn, Value number, State &state);
  mlir::LogicalResult runLoop(Turn &turn, Value first, Value end, State &state);
  mlir::LogicalResult runTurns(State &state);
  Value end(); ///< of the last loop

  llvm::SmallVector<Turn> turns; ///< of one loop each
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUTURNS_H
