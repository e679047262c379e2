// Promises: the frame every tile kernel shares: arguments, the program's
// sequence, head and slice, mapped loads of token rows, state load and store.
// Does not: know the chunk or the step form.
#ifndef KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
#define KDAC_LIB_TRANSFORMS_KERNELBUILDER_H

#include "Problem.h"
#include "TileBuilder.h"

#include "llvm/ADT/StringMap.h"

namespace kdac {

/// Builds one kernel function. After construction the insertion point is inside
/// its body and the members below are set.
class KernelBuilder {
public:
  KernelBuilder(mlir::func::FuncOp source, const Problem &problem,
                tile::ScheduleAttr schedule);

  using Value = mlir::Value;
  const Problem &problem;
  tile::ScheduleAttr schedule;
  mlir::func::FuncOp function;
  mlir::OpBuilder base;
  TileBuilder b;

  int64_t keyTile, valueTile; ///< tile widths: K padded to 16, v_tile
  Value sequence, keyHead, valueHead; ///< of this program instance
  Value begin, length;        ///< first token and number of tokens, index
  Value firstColumn, columns; ///< of the slice of V, index

  Value arg(llvm::StringRef name) const { return args.lookup(name); }

  /// `rows` token rows from token `first`, of which `valid` exist, as
  /// [rows, width] (rank 1 when rows is 0: one token), in their own dtype.
  Value loadKeyRows(llvm::StringRef name, Value first, int64_t rows, Value valid);
  Value loadValueRows(Value first, int64_t rows, Value valid);
  /// beta as f32 [rows], or a scalar when rows is 0; null when absent.
  Value loadBeta(Value first, int64_t rows, Value valid);
  /// The base-2 log-decay of `rows` tokens: [rows, K], [rows], or for one token
  /// (rows 0) [K] or a scalar. Zero on rows past `valid`. Null when absent.
  Value loadLogDecay(Value first, int64_t rows, Value valid);
  /// Writes [rows, v_tile] (or [v_tile]) of the output.
  void storeOut(Value out, Value first, Value valid);

  /// In chunk `number` of the loop: where tile-split-roles may keep its values.
  void markCut(Value number);

  Value loadState();
  void storeState(Value state);
  /// Ends the function.
  void finish();

private:
  void createFunction(mlir::func::FuncOp source);
  void locateProgram();
  void loadGateParameters();
  Value mapGate(Value logits);
  Value loadRows(llvm::StringRef name, Value first, Value offset, int64_t rows,
                 Value valid, int64_t tileWidth, Value width, int64_t fullWidth);
  /// Rows of one number per token and head.
  Value loadPerHead(llvm::StringRef name, Value first, int64_t rows, Value valid);
  struct StateAccess {
    Value base, stride;
    llvm::SmallVector<Value> valid;
    int64_t align;
    bool transposed;
  };
  StateAccess stateAccess();

  llvm::StringMap<Value> args;
  Value gateRate; ///< exp(A_log) of the head, kept finite, f32
  Value gateBias; ///< dt_bias of the head: [K] or a scalar
};

/// Fill the body of a kernel. dplr-to-tile's two forms.
void buildChunkForm(KernelBuilder &kernel);
void buildStepForm(KernelBuilder &kernel);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
