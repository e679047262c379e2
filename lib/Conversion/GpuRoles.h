// Promises: the lowering of a kernel whose roles are warps (roles = "warps"):
// one block holds warps that chain, warps that prepare and warps that transfer,
// joined by rings of images and mbarriers.
// Does not: choose placements (PlaceRoles.cpp) or what belongs to which role
// (tile-split-roles).
#ifndef KDAC_LIB_CONVERSION_GPUROLES_H
#define KDAC_LIB_CONVERSION_GPUROLES_H

#include "GpuLowering.h"

namespace kdac {

/// What prepare computes for one chunk, recognised in the tile program.
/// Shapes: C tokens, K channels; C = 2 blocks of kRoleBlock rows.
struct PreparedChunk {
  tile::CumsumOp decay;            ///< G [C, K], [C] or null
  mlir::Value keyRows, queryRows;  ///< [C, K]: what products are made of
  tile::UnitTrilInverseOp inverse; ///< of I + strengths * gram of keys
  mlir::Value strengths;           ///< [C], beta
  mlir::Value keys, queries;       ///< [C, K]: rows times 2^G
  mlir::Value remaining;           ///< [C, K]: keys times 2^(G_last - G)
  mlir::Value system, attention;   ///< [C, C]: inverse * beta, gram of q
  mlir::Value total;               ///< [K]: 2^G_last
  mlir::Value own; ///< [C]: queries times their own keys, if refined
  llvm::SmallVector<tile::LoadOp> vectorLoads; ///< [C]: beta, decays of heads
  /// Where the loop goes from head to head: what it loads of each, and numbers
  /// made of that.
  llvm::SmallVector<tile::LoadScalarOp> headScalars;
  tile::LoadOp headVector; ///< [K], the gate's bias, or null
  llvm::SmallVector<mlir::Operation *> headNumbers;
  llvm::SmallVector<tile::ReduceOp> norms; ///< sums over rows of q and k
  tile::ReduceOp ownSum;                   ///< and over their product
  tile::LoadOp wideLogits; ///< of a decay for every channel, if in 32 bits
};

/// The vector that `value` repeats along dimension `along`, or null.
mlir::Value repeated(mlir::Value value, int64_t along);

/// x of x * broadcast(vector along `along`) with the vector, or null.
mlir::Value besideBroadcast(mlir::Value product, int64_t along,
                            mlir::Value &vector);

class RoleLowering {
public:
  explicit RoleLowering(GpuLowering &at) : at(at), b(at.b) {}
  mlir::LogicalResult run();

private:
  using Value = mlir::Value;
  using Values = GpuEmitter::Values;

  //===-- What the program says (GpuRoleMatch.cpp, GpuRoleParts.cpp)
  //---------===//
  mlir::LogicalResult match();
  mlir::LogicalResult refuse();
  mlir::LogicalResult matchPart(Value part);
  /// The left rows of a [C, C] product with keys, decayed as tokens are; null
  /// if `value` is none. Learns what the keys are.
  Value matchGram(Value value, bool strict);
  bool isDecayed(Value part, Value rows, bool toLast);
  bool isRefined() const { return at.schedule.getRefined(); }
  /// The keys of products have length 1 at most.
  bool hasUnitKeys() const;
  /// The choice of a scalar between an operand and zeros, or null: a product
  /// that only some chunks have.
  mlir::arith::SelectOp choiceOf(tile::DotOp op);
  bool isOfLastChunk(mlir::arith::SelectOp choice);

  //===-- Frame (GpuRoles.cpp)
  //----------------------------------------------===//
  mlir::LogicalResult lowerPrologue();
  bool isPreparersAlone(Value value) const;
  void findPreparersOwn();
  void lowerPreparersOwn();
  void lowerLongest(tile::LongestOp op);
  mlir::LogicalResult lowerCopied(mlir::Operation *op);
  void forScalars(llvm::function_ref<void(Value, Value, int64_t)> keep);
  void readScalars(bool apart = false);
  bool loadsApart(unsigned role) const;
  void initialise();
  void zeroAboveDiagonal(int64_t firstStage);
  void dispatch();

  //===-- Chunks (GpuRoleChunks.cpp)
  //----------------------------------------===//
  /// Emits `then` for threads of which `condition` holds, else `otherwise`.
  void branch(Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = {});
  /// The same for values that either side updates.
  void choose(Value condition, Values &carried,
              llvm::function_ref<void(Values &)> then,
              llvm::function_ref<void(Values &)> otherwise);
  /// for (i = first; i < end; i += step) in i32, rolled; `carried` are updated.
  void loop(Value first, Value end, int64_t step, Values &carried,
            llvm::function_ref<void(Value, Values &)> body);
  /// Emits `body` with the numbers of the thread and the scalars found out
  /// anew, so that nothing computed from them is kept from before; scalars
  /// `apart`: see readScalars.
  void anew(bool apart, llvm::function_ref<void()> body);
  /// A loop over chunks: nothing computed from the numbers of the thread or of
  /// the program is kept in registers around it, and their count only if
  /// `keepsCount`; else `body` may give back its number in another register.
  void chunkLoopOf(Value first, int64_t step, bool keepsCount, Values &carried,
                   llvm::function_ref<void(Value &, Values &)> body);
  /// Like loop, up to a count of chunks that is read again in every turn.
  void whileLess(Value first, int64_t step, Values &carried,
                 llvm::function_ref<void(Value &, Values &)> body);
  void locateInGroup();
  /// Makes the index arithmetic of the chunk loop that `users` need, as it is
  /// in iteration `number` (i32), from sizes that are read again here: roles
  /// with few registers keep no products of sizes around.
  void enterChunk(Value number, llvm::ArrayRef<mlir::Operation *> users);
  Value select(Value condition, Value a, Value b);
  Value pointer(Value offset, int64_t constant = 0);
  /// Bytes from the first buffer of a ring to that of chunk `number`.
  Value bufferOf(Value ringed, Value number);
  Value parityOf(Value number, int64_t stages);
  /// Of the image of chunk `number`: its buffer in the ring, and the parity of
  /// that buffer's turn.
  Value imagePlace(Value number);
  Value imageParity(Value number);
  Value rowParity(Value number);
  /// The mbarrier of chunk `number`.
  Value loadedImage(Value number), preparedImage(Value number);
  Value loadedValue(Value number), madeOutput(Value number);
  Value barrierAt(int64_t first, Value number, int64_t stages);
  int64_t chunkRows() const { return at.schedule.getChunk(); }
  int64_t imageStages() const { return at.schedule.getStages(); }
  /// A pair may come more than one turn of the ring early, and a wait for a
  /// parity does not know a phase from the one after the next: then there is an
  /// mbarrier of loaded rows for every chunk of a pair's turn.
  int64_t rowStages() const {
    return isAssisted()
               ? imageStages()
               : std::max(imageStages(), tile::prepareTurn(at.schedule));
  }
  int64_t valueStages() { return at.place(output.getValue()).getStages(); }
  int64_t keyDim();
  int64_t chainWarpgroups() const;
  bool prepares() const { return tile::preparePairs(at.schedule) > 0; }
  /// False where the output goes to an argument that is never there: then what
  /// only the output needs is neither made nor loaded.
  bool hasOutput();

  //===-- Transfer (GpuTransfer.cpp)
  //----------------------------------------===//
  void transfer();
  struct Piece;
  Piece pieceOf(Value tile, int64_t pass) const;
  int64_t passes(Value tile) const;
  Value pieceAddress(mlir::Operation *op, Value tile, Value number);
  Value firstPiece(mlir::Operation *op, Value tile, int64_t number);
  Value rowBytes(mlir::Operation *op);
  Value limitRows(Value ref, mlir::ValueRange valid);
  void startRows(tile::LoadOp load, Value number, Value address);
  void storeOutput(Value number, Value address);
  void transferImagesOut();
  Value workspaceImage(Value number);
  Value imageBuffer(Value number);
  void startImage(Value number);
  void storeImage(Value number);
  int64_t imageSize() const;

  //===-- The state's way through shared memory (GpuRoleState.cpp)
  //----------------------------------------------===//
  /// The initial state is copied to bytes of the rings while they are not
  /// needed yet.
  bool stagesState();
  Value loadedState();  ///< mbarrier: the copy is there
  Value leftState();    ///< mbarrier: the chain has it, its bytes are free
  int64_t stateLines(); ///< rows of the state as it is in memory
  /// Where element `element` along the rows of a group is in its copy.
  Value stateAt(const Group &group, int64_t element = 0);
  void startState();
  void releaseState();

  //===-- The program that follows (GpuFollower.cpp)
  //----------------------------------------------===//
  bool hasFollower() const { return keepsCopies() && !isAssisted(); }
  Value follower(); ///< its number, or this one's where there is none, i32
  void askForFollower(Value number);
  void askForRows(tile::LoadOp load);
  void askForState();

  //===-- Images of a cluster (GpuCluster.cpp)
  //------------------------------------------===//
  int64_t clusterBlocks() const { return tile::clusterBlocks(at.schedule); }
  bool shares() const { return clusterBlocks() > 1 && !isAssisted(); }
  Value rank(); ///< of this block in its cluster, i32
  Value isOwn(Value number);
  Value awaitedImage(Value number);
  void awaitImage(Value number);
  void requestImage(Value number);
  void sendImage(Value number);

  //===-- Programs with an assistant (GpuAssist.cpp)
  //---------------------------------------------===//
  bool isAssisted() const { return tile::isAssisted(at.schedule); }
  bool keepsCopies() const { return at.kernel->hasAttr("tile.scalar_bytes"); }
  Value isAssistant(); ///< i1: this block is one
  /// True if the assistant prepares chunk `number`, which may be -9 or more.
  Value isLent(Value number);
  Value ownNumber(Value number);
  void shareOutThreads();
  Value programOfCopy();
  Value copyBytes(Value copy);
  Value vectorCopy(tile::LoadOp load, Value copy);
  void useCopy(std::function<Value()> copy);
  Value firstOwn(Value pair);
  /// From a chunk of a program's own to the one that takes its buffer: the
  /// first or the second of a period.
  static constexpr int64_t kNearOwn = 7, kFarOwn = 8;
  void fillOrAsk(Value number, llvm::ArrayRef<Value> now);
  void askAssistant(Value number);
  Value takenImage(Value place);
  void assist();
  void prepareForPrograms();
  void transferForPrograms();
  Value firstLent(Value pair);
  void enterPair(Value pair);
  void handOver(Value number, Value pair);

  //===-- Prepare (GpuPrepare.cpp)
  //------------------------------------------===//
  friend class ChunkPreparer;
  void prepare();

  //===-- Chain (GpuChain.cpp)
  //----------------------------------------------===//
  friend class Chain;
  void chain();

  GpuLowering &at;
  GpuEmitter &b;
  mlir::scf::ForOp chunkLoop;
  tile::LoadOp state;                        ///< the initial one
  llvm::SmallVector<tile::LoadOp> imageRows; ///< q, k and g
  tile::LoadOp values;                       ///< v
  tile::StoreOp output;
  tile::CutOp cut; ///< where images are in the workspace, if they are
  PreparedChunk parts;
  mlir::IRMapping roleScalars; ///< what `at.scalars` is outside the chunk loop
  Value chunks;                ///< i32: how many this program has
  /// What makes scalars and vectors of the whole kernel that only prepare
  /// reads.
  llvm::DenseSet<mlir::Operation *> preparersOwn;
  /// Where blocks keep copies for several programs: the number of the one that
  /// is made in the prologue, if this thread makes one, and of the one that a
  /// role of an assistant reads. Null: the first.
  Value copy, makesCopy, threadGroup;
  std::function<Value()> readCopy;
  Value assistedPlace;              ///< in an assistant: the buffer at hand
  Value threadInGroup, warpInGroup; ///< of the present role's warpgroup
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUROLES_H
