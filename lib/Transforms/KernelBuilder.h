// Promises: the frame every tile kernel shares: arguments, the program's
// sequence, head and slice, mapped loads of token rows, state load and store.
// Does not: know the chunk or the step form.
#ifndef KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
#define KDAC_LIB_TRANSFORMS_KERNELBUILDER_H

#include "Problem.h"
#include "TileBuilder.h"

#include "llvm/ADT/StringMap.h"

#include <vector>

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

  int64_t keyTile, valueTile;         ///< tile widths: K padded to 16, v_tile
  Value sequence, keyHead, valueHead; ///< of this program instance
  Value begin, length;        ///< first token and number of tokens, index
  Value firstColumn, columns; ///< of the slice of V, index

  Value arg(llvm::StringRef name) const { return args.lookup(name); }

  /// `rows` token rows from token `first`, of which `valid` exist, as
  /// [rows, width] (rank 1 when rows is 0: one token), in their own dtype.
  Value loadKeyRows(llvm::StringRef name, Value first, int64_t rows,
                    Value valid);
  Value loadValueRows(Value first, int64_t rows, Value valid,
                      llvm::StringRef name = "v");
  /// One token's row of q, k or v in f32, convolved if the problem says so.
  Value loadConvolved(llvm::StringRef name, const MappedOperand &source,
                      Value token);
  /// The output of one token after its norm and gate, if the problem has one.
  Value gated(Value out, Value token);
  /// beta as f32 [rows], or a scalar when rows is 0; null when absent.
  Value loadBeta(Value first, int64_t rows, Value valid);
  /// The gate operand of `rows` tokens in f32: [rows, K], [rows], or for one
  /// token (rows 0) [K] or a scalar. Null when absent.
  Value loadGate(Value first, int64_t rows, Value valid);
  /// The base-2 log-decay of what loadGate gave; zero on rows past `valid`.
  Value logDecay(Value gate, int64_t rows, Value valid);
  /// Writes [rows, v_tile] (or [v_tile]) of the output.
  void storeOut(Value out, Value first, Value valid);

  /// In chunk `number` of the loop: where tile-split-roles may keep its values.
  void markCut(Value number);

  Value loadState();
  /// Asks for the state of a program instance some way ahead.
  void prefetchState();
  void storeState(Value state);
  /// Writes the state after `token` to its snapshot's slot; nothing in kernels
  /// without snapshots.
  void storeSnapshot(Value state, Value token);
  /// Reads, then writes, the newest inputs of the convolutions, entry by entry
  /// of each cache: reads first and all at once, since a cache changes in
  /// place.
  llvm::SmallVector<Value> loadCaches();
  void storeCaches(llvm::ArrayRef<Value> kept);
  /// Ends the function.
  void finish();

private:
  void createFunction(mlir::func::FuncOp source);
  void locateProgram();
  void locateSlots();
  void guardArguments(Value live);
  Value isSlot(Value index);
  struct Channels;
  Channels channelsOf(llvm::StringRef name, const MappedOperand &source);
  Value inputAt(const Channels &channels, Value position, Value entry);
  std::vector<Channels> allChannels();
  void loadGateParameters();
  Value mapGate(Value logits);
  Value loadRows(llvm::StringRef name, Value first, Value offset, int64_t rows,
                 Value valid, int64_t tileWidth, Value width,
                 int64_t fullWidth);
  /// Rows of one number per token and head.
  Value loadPerHead(llvm::StringRef name, Value first, int64_t rows,
                    Value valid);
  struct StateAccess {
    Value base, stride;
    llvm::SmallVector<Value> valid;
    int64_t align;
    bool transposed;
  };
  StateAccess stateAccess(Value slot);
  void storeState(Value state, Value ref, Value slot);

  Value source,
      slot;        ///< where the state comes from and goes to: sequence or slot
  Value hasSource; ///< i1: the sequence starts from a slot; null: always
  Value valid;     ///< i1 of pools: a checked launch found no bad index
  llvm::StringMap<Value> args;
  llvm::StringMap<Value> given; ///< args before any guard
  Value gateRate;               ///< exp(A_log) of the head, kept finite, f32
  Value gateBias;               ///< dt_bias of the head: [K] or a scalar
};

/// The kernel that checks a pool kernel's indices, beside `kernel`.
mlir::func::FuncOp buildSlotCheck(const KernelBuilder &kernel);

/// Fill the body of a kernel. dplr-to-tile's two forms.
void buildChunkForm(KernelBuilder &kernel);
void buildStepForm(KernelBuilder &kernel);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
