// Promises: the lowering of one placed tile kernel to one thread's program.
// Does not: choose placements (tile-place) or schedules (dplr-select-schedule).
#ifndef KDAC_LIB_CONVERSION_GPULOWERING_H
#define KDAC_LIB_CONVERSION_GPULOWERING_H

#include "GpuEmitter.h"
#include "kdac/Dialect/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <functional>
#include <map>

namespace kdac {

/// Elements of a tile that one thread handles together: `width` of them,
/// consecutive along dimension `along`, from (row, col). For a vector only
/// `col` counts. `slot` is their place in a distributed value's registers.
struct Group {
  Coord row, col;
  int64_t width = 1;
  int64_t along = 1;
  int64_t slot = 0;
  /// For sums over rows of a state tile: the place of the column's total.
  int64_t columnSlot = 0;
  /// i1: other threads have the elements too, and speak for them; null: no.
  mlir::Value isRepeat;
};

/// How a tile is spread over the threads of a block.
struct Layout {
  llvm::SmallVector<Group> groups;
  int64_t slots = 0; ///< registers of one thread
  /// One condition per group when threads do not divide evenly, else empty.
  llvm::SmallVector<mlir::Value> guards;
  /// When not 0, group i is group 0 moved down by i * rowStep rows.
  int64_t rowStep = 0;

  // State layouts only: how sums over rows end.
  llvm::SmallVector<int64_t> rowLanes; ///< lane bits that tell rows apart
  llvm::SmallVector<Group> columns; ///< this thread's columns, as vector groups
  int64_t columnSlots = 0;
  mlir::Value firstRowLane; ///< i1: this thread speaks for its columns
};

class GpuLowering {
public:
  using Value = mlir::Value;
  using Values = GpuEmitter::Values;

  /// `minBlocks`: see the pass option.
  GpuLowering(mlir::func::FuncOp kernel, int64_t minBlocks);
  mlir::LogicalResult run();

private:
  using Range = std::pair<int64_t, int64_t>; ///< bytes [first, end)
  //===-- Frame (TileToNVVM.cpp)
  //--------------------------------------------===//
  void createKernel();
  mlir::LogicalResult lowerBlock(mlir::Block &block);
  mlir::LogicalResult lowerOp(mlir::Operation *op);
  //===-- Loops (GpuLoop.cpp)
  //------------------------------------------------===//
  struct LoopPlan;
  LoopPlan planOf(mlir::scf::ForOp loop);
  mlir::LogicalResult lowerLoop(mlir::scf::ForOp loop);
  mlir::LogicalResult lowerIteration(mlir::scf::ForOp loop,
                                     mlir::scf::ForOp made,
                                     const LoopPlan &plan, size_t carried);
  Values registersOf(Value value);
  void bindRegisters(mlir::ValueRange values, mlir::ValueRange elements);
  Value later(mlir::scf::ForOp loop, Value number, int64_t iterations);
  mlir::IRMapping hideSizes();
  bool sharesMemory() const; ///< the kernel has shared memory
  bool makesShared(mlir::scf::ForOp loop) const;
  //===-- Tokens of the step form (GpuTokens.cpp)
  //----------------------------===//
  static llvm::SmallVector<mlir::Operation *> headOf(mlir::scf::ForOp loop);
  mlir::LogicalResult lowerHead(llvm::ArrayRef<mlir::Operation *> head,
                                mlir::scf::ForOp loop, Value number);
  mlir::LogicalResult lowerFirstHead(llvm::ArrayRef<mlir::Operation *> head,
                                     mlir::scf::ForOp loop);
  tile::LoadOp stagedState();
  tile::LoadOp firstStateOf(mlir::scf::ForOp loop) const;
  mlir::LogicalResult lowerFirstState(tile::LoadOp state,
                                      llvm::ArrayRef<mlir::Operation *> head,
                                      mlir::scf::ForOp loop);
  mlir::LogicalResult locateAnew(mlir::scf::ForOp loop);
  mlir::LogicalResult lowerNextHead(llvm::ArrayRef<mlir::Operation *> head,
                                    mlir::scf::ForOp loop, Value number,
                                    Values &carried);
  void lowerAwaitLaunch();
  void lowerStartNext();
  void awaitKernelsAhead();
  void hideGuards(mlir::IRMapping &before);
  void locateThread(Value threadIndex);

  //===-- Loads ahead (GpuPipeline.cpp)
  //------------------------------------===//
  /// The loop's loads that have several buffers.
  llvm::SmallVector<tile::LoadOp> loadsAhead(mlir::scf::ForOp loop) const;
  /// Starts the copies of iteration `number` into its buffers.
  void startCopies(mlir::scf::ForOp loop, llvm::ArrayRef<tile::LoadOp> loads,
                   Value number);
  void startCopy(tile::LoadOp op, Value slot);
  void locateIteration(mlir::scf::ForOp loop, Value number);
  Value pieceAddress(tile::LoadOp staged, int64_t number);
  /// Vectors that cannot be copied: one element per thread of iteration
  /// `number`, to be stored when it begins.
  Values loadElements(mlir::scf::ForOp loop, llvm::ArrayRef<tile::LoadOp> loads,
                      Value number);
  Group elementGroup(tile::LoadOp load);
  /// Makes this iteration's tiles readable: stores the elements, waits, and
  /// points `slots` to the present buffers.
  void finishLoads(llvm::ArrayRef<tile::LoadOp> loads, Value number,
                   mlir::ValueRange elements);
  Value slotOf(Value value, Value number);
  int64_t stageBytes(Value value) const;

  void lowerScalar(mlir::Operation *op);
  void lowerDivision(mlir::Operation *op);
  void lowerLoadScalar(tile::LoadScalarOp op);
  void lowerGuard(tile::GuardOp op);
  Value presence(Value ref);
  void lowerChoose(tile::ChooseOp op);
  void lowerPrefetch(tile::PrefetchOp op);
  mlir::LogicalResult lowerPrefetches();
  bool isFoundLate(mlir::Operation *op);
  void lowerCheckSlots(tile::CheckSlotsOp op);
  void materialise(mlir::Operation *op, Value result);
  void columnsToShared(Value vector, Value result);
  void copyToShared(tile::LoadOp op);
  void computeToShared(Value result, const Layout &layout,
                       llvm::function_ref<Values(const Group &)> compute);
  /// The registers of a distributed value, group by group.
  Values distribute(Value tile,
                    llvm::function_ref<Values(const Group &)> compute);

  //===-- Batches of the step form (GpuBatches.cpp)
  //-----------------------------===//
  /// True if `op` is lowered later, with others of its kind; else the batch
  /// that must come before it has been.
  bool joinsBatch(mlir::Operation *op);
  void flushBatches();
  struct Shares;
  std::optional<Shares> sharesOf(int64_t size, int64_t count) const;
  template <typename Op>
  std::optional<llvm::SmallVector<std::pair<Shares, llvm::SmallVector<Op>>>>
  divide(llvm::ArrayRef<Op> ops, llvm::function_ref<Value(Op)> vectorOf,
         llvm::function_ref<int64_t(llvm::ArrayRef<Op>)> count) const;
  Group groupOf(const Shares &shares, int64_t part);
  void forPart(const Shares &shares, int64_t part, bool once,
               llvm::function_ref<void(const Group &)> body);
  bool isMadeOnce(mlir::Operation *op) const;
  bool mayOvertake(mlir::Operation *op) const;
  void startLoads(Value value, const Group &group);
  void makeVectors(llvm::ArrayRef<mlir::Operation *> ops);
  mlir::Operation *makerOf(tile::StoreOp store) const;
  void storeBehind(llvm::ArrayRef<tile::StoreOp> stores, const Group &group);
  void storeBehind(llvm::ArrayRef<tile::StoreOp> stores);
  void storeVectors(llvm::ArrayRef<tile::StoreOp> ops);
  void storeDivided(
      llvm::ArrayRef<std::pair<Shares, llvm::SmallVector<tile::StoreOp>>> all);
  /// Stores a group of each of some vectors that lie side by side, or of one.
  void storeRun(llvm::ArrayRef<tile::StoreOp> run, const Group &group);
  /// Stores one group of a vector.
  void storeVector(tile::StoreOp op, const Group &group,
                   const Values &elements);

  //===-- Bulk stores of the step form (GpuBulkStore.cpp)
  //-------------------------===//
  /// Where a state is collected on its way to memory, or null.
  static tile::PlaceAttr bulkPlace(tile::StoreOp op);
  bool storesInBulk(); ///< the kernel has such a state
  void storeInBulk(tile::StoreOp op);
  /// At the end of a kernel: the block's shared memory must last until then.
  void awaitBulkStores();

  //===-- Placement
  //---------------------------------------------------------===//
  tile::PlaceAttr place(Value value, unsigned extra = 0) const;
  tile::Home home(Value value) const;
  /// True if computing `value` element by element meets a distributed value.
  bool hasRegisterLeaf(Value value) const;
  /// The shared values that computing `value` reads.
  void sharedLeaves(Value value, llvm::SmallVectorImpl<Value> &leaves) const;

  //===-- Hazards between threads (TileToNVVM.cpp)
  //--------------------------===//
  Range range(Value value, unsigned extra = 0) const;
  /// Call before code that reads and writes these bytes: emits a barrier if
  /// some thread may still write what is read, or use what is overwritten.
  void access(llvm::ArrayRef<Range> reads, llvm::ArrayRef<Range> writes);
  void synchronise();
  llvm::SmallVector<Range> rangesRead(mlir::ValueRange values) const;

  //===-- Layouts (GpuLayout.cpp)
  //-------------------------------------------===//
  /// The layout of distributed values of a shape: fragments of mma.sync in the
  /// chunk form, lanes along K in the step form, in kernels of one row 16 bytes
  /// of it a thread. Made once per shape.
  const Layout &distributed(llvm::ArrayRef<int64_t> shape);
  /// All threads in turn, `width` elements of a row at a time.
  Layout linear(llvm::ArrayRef<int64_t> shape, int64_t width);
  /// Emits `body` for every group: in a rolled loop where groups are regular, a
  /// few at a time, which keeps code and registers small.
  void forGroups(const Layout &layout,
                 llvm::function_ref<void(const Group &)> body);
  /// The same over runs of consecutive rows of a thread, whose groups share
  /// what they evaluate: windows of a tile have most of their rows in common.
  /// False where the shape does not divide into them.
  bool forRuns(llvm::ArrayRef<int64_t> shape, int64_t width,
               llvm::function_ref<void(const Group &)> body);
  Layout fragments(int64_t rows, int64_t cols);
  Layout fragmentRows(int64_t rows);
  /// Warps that have elements of one row of fragments.
  int64_t warpsOfRow(int64_t rows) const;
  Layout stateLanes(int64_t rows, int64_t cols);
  Layout vectorLanes(int64_t size);
  bool isOneRow() const { return tile::isOneRow(schedule); }

  //===-- Elementwise (GpuElementwise.cpp)
  //----------------------------------===//
  /// The elements of `value` in `group`: f32, i32 or i1 scalars.
  Values evaluate(Value value, const Group &group);
  Values evaluateOp(mlir::Operation *op, const Group &group);
  Values evaluateBroadcast(tile::BroadcastOp op, const Group &group);
  Values iota(tile::IotaOp op, const Group &group);
  Values loadShared(Value value, const Group &group);
  Value applyScalar(mlir::Operation *op, mlir::ValueRange operands);
  /// Drops remembered elements, so that they need no registers until reused;
  /// the step form keeps them: its state stays in registers anyway, and rows
  /// need none.
  void forget() {
    if (!tile::loopsOverTiles(schedule))
      return;
    memo.clear();
    b.memoryFence();
  }
  void storeShared(Value value, const Group &group, mlir::ValueRange elements);

  //===-- Loads from global memory (GpuLoads.cpp)
  //----------------------------===//
  Values loadGlobal(tile::LoadOp op, const Group &group);
  /// The same bytes, unconverted, as one vector: for copies to shared memory.
  Value loadGlobalRaw(tile::LoadOp op, const Group &group, Value guard);
  /// One element as an integer of its width. Whoever makes a number of it waits
  /// for the load.
  Value loadBits(tile::LoadOp op, const Group &group);
  struct Access; ///< the operands of a tile.load or tile.store
  static bool isContiguous(const Access &at, const Group &group);
  /// The elements of a group that is valid.
  Values loadPresent(tile::LoadOp op, const Access &access, const Group &group,
                     bool invariant);
  Values loadIf(tile::LoadOp op, const Group &group, bool invariant);
  /// The elements of a vector of entries, of words that hold whole channels
  /// (GpuEntries.cpp); nothing if it has none or they are not so aligned.
  std::optional<Values> loadEntries(tile::LoadOp op, Value ref, Value base,
                                    Value stride, const Group &group,
                                    bool invariant);
  Values loadWords(tile::LoadOp op, const Group &group);
  Values loadIf(const Access &access, int64_t align, const Group &group,
                Value condition, bool invariant);
  template <typename Op> Access accessOf(Op op, mlir::RankedTensorType type);
  Value globalPointer(const Access &access, const Group &group,
                      int64_t element);
  Value globalPointer(tile::LoadOp op,
                      const Group &group); ///< its first element
  /// The row of memory (i64) that row `row` of a tile is, which a tile.load
  /// finds through its order.
  Value pickedRow(tile::LoadOp op, Coord row);
  /// Looks it up now, for all accesses with this coordinate.
  void keepPickedRow(tile::LoadOp op, Coord row);
  /// i1: `ref` is present and the group lies in the valid part. Null: it is
  /// known to.
  Value validity(Value ref, mlir::ValueRange valid,
                 llvm::ArrayRef<int64_t> shape, const Group &group);
  /// The same of a ref of the tile kernel.
  Value validityOf(Value ref, mlir::ValueRange valid,
                   llvm::ArrayRef<int64_t> shape, const Group &group);
  Value inside(Value condition, mlir::ValueRange valid,
               llvm::ArrayRef<int64_t> shape, const Group &group);

  //===-- Stores to global memory (GpuStores.cpp)
  //----------------------------===//
  void lowerStore(tile::StoreOp op);
  void storeRow(tile::StoreOp op, const Access &at, Value source);
  void storeSpoken(tile::StoreOp op, const Access &at, Value source);
  void storeDistributed(tile::StoreOp op, const Access &at, Value source);
  void storeInTurns(tile::StoreOp op, const Access &at, Value source);
  void storePresent(tile::StoreOp op, const Access &at, const Group &group,
                    mlir::ValueRange elements);
  void storePresent(tile::StoreOp op, const Group &group,
                    mlir::ValueRange elements);
  /// Emits `body` where `group` of `op` is valid; `speaks` may silence the
  /// thread.
  void whereValid(tile::StoreOp op, const Group &group, Value speaks,
                  llvm::function_ref<void()> body);
  /// Stores groups that are all valid or all not.
  void storeGroups(tile::StoreOp op, const Access &at,
                   llvm::ArrayRef<Group> groups,
                   llvm::ArrayRef<Values> elements, Value speaks);
  /// Runs `store` now, or where stores are held back, when they are let go. A
  /// load cannot overtake a store that might be to the same place, so code that
  /// handles several groups loads for all of them before it stores any.
  void emitStore(std::function<void()> store);
  void holdStores() { holding = true; }
  void releaseStores();
  /// Emits `body`, which goes over a tile computed from `tiles` and stored to
  /// `store`, if any. In kernels of rows twice: tiles that are there and whole,
  /// as nearly all are, take code without a condition between their loads.
  void forWholeOrNot(mlir::ValueRange tiles, tile::StoreOp store,
                     llvm::function_ref<void()> body);
  void loadLeaves(Value value, llvm::SetVector<tile::LoadOp> &loads) const;
  /// The kernel arguments that a ref may stand for.
  static void argumentsOf(Value ref, llvm::SmallVectorImpl<Value> &arguments);
  /// True if the kernel stores through the argument that `ref` stands for.
  bool isWritten(Value ref) const;
  /// True if something before `stores`, except what they store, reads through
  /// the arguments that they write.
  bool areReadBefore(llvm::ArrayRef<tile::StoreOp> stores) const;
  Value roundedSource(Value value) const;

  //===-- Products (GpuProducts.cpp)
  //----------------------------------------===//
  struct Operand {
    int64_t offset, pitch; ///< bytes, elements
    mlir::Type element;
    bool transposed; ///< stored with the product's k along rows (for a: [k][m])
    Value slot;      ///< bytes to the loop's present buffer, or null
  };
  void lowerDot(tile::DotOp op);
  Operand operandOf(Value value, bool transposed);
  llvm::SmallVector<Coord> rowTilesOf(llvm::ArrayRef<int64_t> shape);
  /// In the attention form the left sides that a loop's products do not change
  /// are fragments in registers all through it.
  bool holdOperands(mlir::scf::ForOp loop);
  Values loadA(const Operand &a, Coord row, int64_t k);
  Values loadB(const Operand &b, Coord col, int64_t k);
  void multiplyFragments(tile::DotOp op, const Operand &left,
                         const Operand &right, Values &sums);
  void multiplyByThreads(tile::DotOp op, const Operand &left,
                         const Operand &right, Values &sums);
  Values multiplySteps(const Operand &left, const Operand &right,
                       const Layout &layout, Value first, int64_t steps,
                       const Values &sums);
  Values loadSteps(const Operand &of, bool isLeft, Coord at, int64_t width,
                   Value k, int64_t steps);
  void lowerGram(tile::DecayedGramOp op);
  Value sharedAddress(int64_t offset, int64_t pitch, mlir::Type element,
                      Coord row, Coord col, Value slot = {});

  //===-- Across elements (GpuReductions.cpp)
  //-------------------------------===//
  void lowerCumsum(tile::CumsumOp op);
  mlir::LogicalResult lowerReduce(tile::ReduceOp op);
  void reduceFragments(tile::ReduceOp op);
  mlir::LogicalResult reduceColumns(tile::ReduceOp op);
  Value joined(tile::ReduceOp op, Value x, Value y);
  Value joinLanes(tile::ReduceOp op, Value x, llvm::ArrayRef<int64_t> masks);
  void reduceRows(tile::ReduceOp op);
  void sumRows(tile::ReduceOp op, int64_t width);
  void reduceState(tile::ReduceOp op);
  Value reduceVector(tile::ReduceOp op);
  Value reduceRow(tile::ReduceOp op);
  void lowerInverse(tile::UnitTrilInverseOp op);
  void zeroUpper(tile::UnitTrilInverseOp op, int64_t block);
  void invertDiagonal(tile::UnitTrilInverseOp op, int64_t block);
  void invertBelow(tile::UnitTrilInverseOp op, int64_t row, int64_t col,
                   int64_t block);
  void lowerRowScalar(tile::RowOp op);

  //===-- Roles as warps (GpuRoles.h)
  //--------------------------------------===//
  /// The elements of a load whose argument is present and whose sizes are
  /// whole.
  Values loadPresent(tile::LoadOp op, const Group &group);
  Value globalPointer(tile::StoreOp op, const Group &group);
  /// What evaluate() is to answer for the elements of `value` in `group`.
  void remember(Value value, const Group &group, const Values &elements);

  friend class GramLowering;
  friend class RoleLowering;
  friend class ChunkPreparer;
  friend class Chain;
  friend class PanelLowering;
  friend class MatmulLowering;
  friend class TurnLowering;

  std::map<std::pair<mlir::Operation *, Coord>, Value> pickedRows; ///< kept
  mlir::func::FuncOp kernel;
  tile::ScheduleAttr schedule;
  mlir::OpBuilder builder;
  GpuEmitter b;
  int64_t minBlocks;
  mlir::LLVM::LLVMFuncOp function;
  mlir::IRMapping scalars;                 ///< tile kernel's scalars to ours
  llvm::DenseMap<Value, Values> registers; ///< distributed values
  /// Left sides of products in the loop, step by step of k, by rows' tiles.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Values>> heldFragments;
  llvm::DenseMap<Value, Value> slots; ///< bytes to the present of its buffers
  using Layouts = llvm::SmallVector<
      std::pair<llvm::SmallVector<int64_t>, std::unique_ptr<Layout>>>;
  Layouts layouts; ///< of the present region
  std::map<std::tuple<void *, Coord, Coord, int64_t, int64_t>, Values> memo;
  llvm::SmallVector<std::function<void()>> heldStores;
  bool holding = false;
  bool knownWhole = false; ///< see forWholeOrNot
  bool waits = false;      ///< the wait for kernels ahead is still to come
  llvm::SmallVector<mlir::Operation *> vectorBatch; ///< at most one of the two
  llvm::SmallVector<tile::StoreOp> storeBatch;      ///< has members
  /// Stores of what vectors of the batch are made of.
  llvm::MapVector<mlir::Operation *, llvm::SmallVector<tile::StoreOp>>
      storesBehind;
  llvm::SmallVector<tile::PrefetchOp> heldPrefetches;
  mlir::scf::IfOp withoutToken; ///< around what only empty sequences do, if any
  Value sharedBase, thread, lane, warp, block;
  int64_t threads = 0, warps = 0;
  int64_t nextTurn = 0; ///< the thread that begins the next vector made once
  llvm::SmallVector<Range> pendingReads, pendingWrites;
  bool stateIsVFirst = true; ///< K is contiguous in the state's memory
  mlir::Type stateElement;
  mlir::Operation *layoutAnchor =
      nullptr; ///< layouts' coordinates go before it
};

/// Steps of k that one mma.sync of this operand type takes.
int64_t mmaDepth(mlir::Type element);

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPULOWERING_H
