#include "PlaceRoles.h"
#include "PlaceTurns.h"
#include "kdac/Passes.h"
#include "kdac/Target/Targets.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILEPLACEPASS
#include "kdac/Passes.h.inc"

namespace {

using tile::Home;

/// A stretch of shared memory and the ops between which its bytes matter.
struct Buffer {
  int64_t bytes, first, last; ///< size; positions of first write, last read
  int64_t offset = 0;
  bool isFree = false; ///< at once: there is a barrier behind the last read
};

class Placer {
public:
  explicit Placer(func::FuncOp kernel)
      : kernel(kernel), schedule(kernel->getAttrOfType<tile::ScheduleAttr>(
                            tile::kScheduleAttr)) {}

  LogicalResult place();

private:
  LogicalResult checkLimit(int64_t bytes);
  void number();
  bool isStep() const { return schedule.getForm() == "step"; }
  bool isRows() const { return schedule.getForm() == "rows"; }
  bool isOneRow() const { return tile::isOneRow(schedule); }
  Home homeOf(Value value);
  Home homeOfElementwise(Operation *op);
  Home homeInStep(Operation *op, Value value);
  bool isHeld(Value value);
  bool makesVectorsOnce();
  int64_t lastUse(Value value);
  int64_t position(Operation *op) { return positions.lookup(op); }
  void placeOp(Operation *op);
  tile::PlaceAttr shared(ArrayRef<int64_t> shape, Type element, int64_t first,
                         int64_t last, int64_t stages = 1);
  tile::PlaceAttr staged(tile::LoadOp load);
  bool goesInBulk(tile::StoreOp store);
  void assignOffsets();

  func::FuncOp kernel;
  tile::ScheduleAttr schedule;
  DenseMap<Operation *, int64_t> positions;
  DenseMap<Operation *, int64_t> loopEnds;
  SmallVector<Buffer> buffers;
  SmallVector<std::pair<Operation *, SmallVector<tile::PlaceAttr>>> placed;
  int64_t sharedBytes = 0;
  bool sharesVectors = false; ///< step form: vectors over K in shared memory
  std::optional<tile::PlaceAttr> statePlace; ///< of the one that is staged
};

} // namespace

/// Ops whose elements can be computed one by one from their operands'.
static bool isElementwise(Operation *op) {
  return isa<tile::SplatOp, tile::IotaOp, tile::BroadcastOp, tile::RowOp>(op) ||
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

static bool isTile(Value value) {
  return isa<RankedTensorType>(value.getType());
}

static int64_t rank(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

void Placer::number() {
  int64_t next = 0;
  kernel.walk<WalkOrder::PreOrder>(
      [&](Operation *op) { positions[op] = next++; });
  kernel.walk([&](scf::ForOp loop) {
    loopEnds[loop] = position(loop.getBody()->getTerminator());
  });
}

/// True if `op` is computed from a tile.load without a stop in between.
static bool readsGlobal(Operation *op) {
  if (isa<tile::LoadOp>(op))
    return true;
  return isElementwise(op) &&
         llvm::any_of(op->getOperands(), [](Value operand) {
           Operation *source = operand.getDefiningOp();
           return source && isTile(operand) && readsGlobal(source);
         });
}

/// True if `value` is computed from what a product or a loop made, whose
/// elements are distributed.
static bool readsProduct(Value value) {
  if (!isTile(value))
    return false;
  Operation *op = value.getDefiningOp();
  if (!op || isa<tile::DotOp, scf::ForOp>(op))
    return true;
  return isElementwise(op) && llvm::any_of(op->getOperands(), readsProduct);
}

/// Tensor cores read their operands from shared memory, and so does the
/// triangular inverse. A vector repeated over a tile is kept there when making
/// it means global loads.
Home Placer::homeOfElementwise(Operation *op) {
  Value result = op->getResult(0);
  for (OpOperand &use : result.getUses()) {
    Operation *user = use.getOwner();
    if (isa<tile::UnitTrilInverseOp>(user))
      return Home::Shared;
    if (auto dot = dyn_cast<tile::DotOp>(user))
      if (use.get() == dot.getA() || use.get() == dot.getB())
        return Home::Shared;
    if (isa<tile::BroadcastOp>(user) && readsGlobal(op))
      return Home::Shared;
    if (isa<scf::YieldOp>(user))
      return Home::Registers;
  }
  return Home::Inline;
}

/// True where the threads share the vectors of a token.
bool Placer::makesVectorsOnce() {
  return kernel.walk([](tile::OnceOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

/// The state's elements stay with their threads, and sums over it end in the
/// threads that need them. Vectors over K are made again in every thread, or
/// once by the block.
Home Placer::homeInStep(Operation *op, Value value) {
  bool carried = llvm::any_of(value.getUsers(), llvm::IsaPred<scf::YieldOp>);
  if (isa<tile::LoadOp>(op) && rank(value) == 2 && schedule.getStages() > 1)
    return Home::Staged;
  if (isa<tile::ReduceOp>(op) || carried)
    return Home::Registers;
  if (isa<tile::OnceOp>(op))
    return Home::Shared;
  bool isFactor = llvm::any_of(value.getUsers(), [](Operation *user) {
    auto broadcast = dyn_cast<tile::BroadcastOp>(user);
    return broadcast && broadcast.getAlong() == 0;
  });
  bool isMade = rank(value) == 1 && isElementwise(op) && readsGlobal(op);
  return isFactor && isMade && sharesVectors ? Home::Shared : Home::Inline;
}

Home Placer::homeOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || isa<scf::ForOp, tile::DotOp>(op))
    return Home::Registers;
  if (isStep())
    return homeInStep(op, value);
  // A row stays with the threads that loaded it.
  if (isOneRow())
    return isa<tile::OnceOp>(op) ? Home::Registers : Home::Inline;
  // Rows go from memory to memory; what several threads need is shared.
  if (isRows())
    return isa<tile::OnceOp, tile::ReduceOp>(op) ? Home::Shared : Home::Inline;
  if (isa<tile::LoadOp>(op)) {
    bool inLoop = op->getParentOfType<scf::ForOp>() != nullptr;
    bool copied = inLoop && (rank(value) == 2 || schedule.getStages() > 1);
    return copied ? Home::Shared : homeOfElementwise(op);
  }
  // A number a row stays with the threads that have elements of the row.
  if (isa<tile::ReduceOp>(op) && rank(op->getOperand(0)) == 2 &&
      readsProduct(op->getOperand(0)))
    return Home::Registers;
  return isElementwise(op) ? homeOfElementwise(op) : Home::Shared;
}

/// The last position at which the bytes of `value` are read: inline users read
/// them when they are consumed themselves, and what a loop reads from outside
/// must last for all its iterations.
int64_t Placer::lastUse(Value value) {
  int64_t last = 0;
  Operation *source = value.getDefiningOp();
  for (Operation *user : value.getUsers()) {
    bool passesOn = user->getNumResults() > 0 && isTile(user->getResult(0)) &&
                    homeOf(user->getResult(0)) == Home::Inline;
    last =
        std::max(last, passesOn ? lastUse(user->getResult(0)) : position(user));
    for (Operation *loop = user->getParentOp(); isa<scf::ForOp>(loop);
         loop = loop->getParentOp())
      if (!loop->isAncestor(source))
        last = std::max(last, loopEnds.lookup(loop));
  }
  return last;
}

/// True of what products in a loop of the attention form take from outside of
/// it as their left side, for tensor cores: it waits in registers.
bool Placer::isHeld(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return schedule.getForm() == "attention" &&
         !tile::multipliesByThreads(type.getElementType()) &&
         llvm::all_of(value.getUses(), [&](OpOperand &use) {
           auto dot = dyn_cast<tile::DotOp>(use.getOwner());
           return dot && use.getOperandNumber() == 0 &&
                  dot->getParentOp() != value.getParentBlock()->getParentOp();
         });
}

/// Rows are 16 bytes longer than their elements, an odd multiple of 16 bytes,
/// so that the eight rows of a matrix fragment start in different banks.
tile::PlaceAttr Placer::shared(ArrayRef<int64_t> shape, Type element,
                               int64_t first, int64_t last, int64_t stages) {
  int64_t bytes = tile::bytesOf(element);
  int64_t pitch = shape.size() == 2 ? shape[1] + 16 / bytes : 0;
  int64_t size = shape.size() == 2 ? shape[0] * pitch : shape[0];
  int64_t total = stages * llvm::alignTo(size * bytes, 16);
  buffers.push_back({total, first, last});
  // The offset is the buffer's number until assignOffsets has run.
  return tile::PlaceAttr::get(kernel.getContext(), Home::Shared,
                              buffers.size() - 1, pitch, stages, 0);
}

tile::PlaceAttr Placer::staged(tile::LoadOp load) {
  // Room for f32 elements, which the loop may put there between tokens. A warp
  // takes columns in whole steps of its lanes (GpuLayout.cpp) and keeps those
  // beyond its share as well.
  RankedTensorType type = load.getResult().getType();
  int64_t warps = schedule.getWarps();
  int64_t share = std::max<int64_t>(1, type.getDimSize(1) / warps);
  int64_t step = load.getTransposed() ? 8 : llvm::bit_floor<uint64_t>(share);
  int64_t columns =
      std::max(type.getDimSize(1),
               warps * static_cast<int64_t>(llvm::alignTo(share, step)));
  buffers.push_back({type.getDimSize(0) * columns * 4, 0, 0});
  return tile::PlaceAttr::get(kernel.getContext(), Home::Staged,
                              buffers.size() - 1, 0, 1, 0);
}

/// True of the store of a state that is staged, where what every warp has of it
/// lies in one piece: bulk copies take it from where it is staged, as by then
/// all threads are done with what waited there. Stores of threads hold up
/// whatever the multiprocessor asks for behind them (docs/PERFORMANCE.md has
/// that, and why not 16-bit states). Only where the loop stores the last state
/// and no other: a kernel that keeps every token's needs the memory in between,
/// and one that replays a log has nothing behind its store.
bool Placer::goesInBulk(tile::StoreOp store) {
  const Target *target = findTarget(schedule.getTarget());
  auto type = cast<RankedTensorType>(store.getValue().getType());
  if (!statePlace || !target || !target->hasBulkCopies || type.getRank() != 2 ||
      !type.getElementType().isF32() || !store.getTransposed())
    return false;
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  bool isPiece = getConstantIntValue(store.getStride()) == rows &&
                 getConstantIntValue(store.getValid()[0]) == rows &&
                 getConstantIntValue(store.getValid()[1]) == columns &&
                 columns % (8 * schedule.getWarps()) == 0;
  int64_t statesOfToken = 0;
  kernel.walk([&](tile::StoreOp other) {
    statesOfToken +=
        isa<scf::ForOp>(other->getParentOp()) && rank(other.getValue()) == 2;
  });
  return isPiece && statesOfToken == 1;
}

void Placer::placeOp(Operation *op) {
  SmallVector<tile::PlaceAttr> places;
  if (auto store = dyn_cast<tile::StoreOp>(op); store && goesInBulk(store))
    placed.push_back({op, {*statePlace}});
  if (isOneRow() && isa<tile::ReduceOp>(op)) {
    // A part from every warp.
    Type f32 = Float32Type::get(op->getContext());
    placed.push_back(
        {op, {shared({schedule.getWarps()}, f32, position(op), position(op))}});
    return;
  }
  for (Value result : op->getResults()) {
    if (!isTile(result))
      return;
    Home home = homeOf(result);
    auto type = cast<RankedTensorType>(result.getType());
    auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
    if (home == Home::Staged) {
      statePlace = staged(cast<tile::LoadOp>(op));
      places.push_back(*statePlace);
      continue;
    }
    if (home != Home::Shared)
      places.push_back(
          tile::PlaceAttr::get(op->getContext(), home, 0, 0, 1, 0));
    else if (isa<tile::LoadOp>(op) && loop && schedule.getStages() > 1)
      // In flight while the loop works on other buffers: alive all through it.
      places.push_back(shared(type.getShape(), type.getElementType(),
                              position(loop), loopEnds.lookup(loop),
                              schedule.getStages()));
    else
      places.push_back(shared(type.getShape(), type.getElementType(),
                              position(op),
                              std::max(position(op), lastUse(result))));
    if (home == Home::Shared && isHeld(result)) {
      Operation *loop = result.user_begin()->getParentOp();
      buffers.back().last = position(loop) - 1;
      buffers.back().isFree = true;
    }
  }
  if (auto reduce = dyn_cast<tile::ReduceOp>(op);
      reduce && reduce.getAlong() == 0 && rank(reduce.getInput()) == 2 &&
      tile::loopsOverTiles(schedule)) {
    // A part of every column from every line of threads.
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    places.push_back(shared({32 * schedule.getWarps()}, type.getElementType(),
                            position(op), position(op)));
  }
  if (isa<tile::ReduceOp>(op) && !isStep() &&
      homeOf(op->getResult(0)) == Home::Registers) {
    // A part of every row from every warp that has some of it.
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    int64_t rows = type.getDimSize(0), warps = schedule.getWarps();
    int64_t parts = warps / std::gcd(rows / 16, warps);
    places.push_back(shared({rows * parts}, type.getElementType(), position(op),
                            position(op)));
  }
  if (auto gram = dyn_cast<tile::DecayedGramOp>(op)) {
    // Scratch for the scaled factors: every left side's, then the right side's
    // (a single anchored factor serves both sides above the leaves).
    auto type = cast<RankedTensorType>(gram.getRhs().getType());
    for (size_t i = 0; i <= gram.getLhs().size(); ++i)
      places.push_back(shared(type.getShape(), gram.getOperand(), position(op),
                              position(op)));
  }
  if (!places.empty())
    placed.push_back({op, places});
}

/// First fit, in order of first write: a buffer takes the lowest bytes that no
/// buffer alive at the same time holds. In a kernel alone on its SM one that
/// died just now counts as alive: taking its bytes at once would cost a
/// barrier. The few vectors of a step never share bytes, for the same reason.
void Placer::assignOffsets() {
  int64_t rest = schedule.getStages() > 1 ? 2 : 0;
  SmallVector<Buffer *> done;
  for (Buffer &buffer : buffers) {
    SmallVector<Buffer *> rivals;
    for (Buffer *other : done)
      if (isStep() ||
          (other->first <= buffer.last &&
           buffer.first <= other->last + (other->isFree ? 0 : rest)))
        rivals.push_back(other);
    llvm::sort(rivals,
               [](Buffer *a, Buffer *b) { return a->offset < b->offset; });
    for (Buffer *rival : rivals)
      if (buffer.offset + buffer.bytes > rival->offset)
        buffer.offset = std::max(buffer.offset, rival->offset + rival->bytes);
    done.push_back(&buffer);
    sharedBytes = std::max(sharedBytes, buffer.offset + buffer.bytes);
  }
}

LogicalResult Placer::checkLimit(int64_t sharedBytes) {
  const Target *target = findTarget(schedule.getTarget());
  if (!target || sharedBytes <= target->sharedBytesPerBlock)
    return success();
  return kernel.emitOpError()
         << "needs " << sharedBytes << " bytes of shared memory, but "
         << schedule.getTarget() << " has " << target->sharedBytesPerBlock
         << "; a smaller chunk than " << schedule.getChunk()
         << " or v_tile than " << schedule.getVTile() << " needs less";
}

/// What is loaded in the chunk loop is one role's.
static bool hasRoles(func::FuncOp kernel) {
  auto loops = kernel.getOps<scf::ForOp>();
  return !loops.empty() &&
         llvm::all_of((*loops.begin()).getOps<tile::LoadOp>(),
                      [](tile::LoadOp load) {
                        return load->hasAttrOfType<StringAttr>(tile::kRoleAttr);
                      });
}

/// Warpgroups for every role, and chunks of two blocks.
static bool fitsRoles(tile::ScheduleAttr schedule) {
  int64_t warpgroups = schedule.getWarps() / 4;
  int64_t others = tile::chainWarpgroups(schedule) + 1; // and transfer
  bool isAlone = schedule.getRoles() == "chain";
  return schedule.getWarps() % 4 == 0 &&
         warpgroups >= others + (isAlone ? 0 : 1) &&
         schedule.getChunk() == 2 * tile::kRoleBlock;
}

LogicalResult Placer::place() {
  if (tile::hasWarpRoles(schedule) && !fitsRoles(schedule))
    return kernel.emitOpError()
           << "expected chunks of 32 rows and four warps and more for every "
              "role, but got "
           << schedule.getChunk() << " and " << schedule.getWarps()
           << " in all";
  if (tile::hasWarpRoles(schedule) && !hasRoles(kernel))
    return kernel.emitOpError()
           << "has no chunk loop with roles, which tile-split-roles writes";
  if (tile::hasWarpRoles(schedule) || tile::multipliesByWarpgroups(schedule)) {
    tile::hasWarpRoles(schedule) ? placeRoles(kernel) : placeTurns(kernel);
    auto bytes = kernel->getAttrOfType<IntegerAttr>("kdac.shared_bytes");
    return checkLimit(bytes.getInt());
  }
  number();
  sharesVectors = isStep() && makesVectorsOnce();
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isa<scf::ForOp, func::FuncOp>(op) &&
        !op->hasTrait<OpTrait::ConstantLike>())
      placeOp(op);
  });
  assignOffsets();
  for (auto &[op, places] : placed) {
    SmallVector<Attribute> attrs;
    for (tile::PlaceAttr place : places)
      attrs.push_back(
          place.getHome() != Home::Shared && place.getHome() != Home::Staged
              ? place
              : tile::PlaceAttr::get(op->getContext(), place.getHome(),
                                     buffers[place.getOffset()].offset,
                                     place.getPitch(), place.getStages(), 0));
    op->setAttr(tile::kPlaceAttr, ArrayAttr::get(op->getContext(), attrs));
  }
  OpBuilder b(kernel);
  kernel->setAttr("kdac.shared_bytes", b.getI64IntegerAttr(sharedBytes));
  kernel->setAttr("kdac.block_threads",
                  b.getI64IntegerAttr(32 * schedule.getWarps()));
  return checkLimit(sharedBytes);
}

namespace {

struct TilePlace : impl::TilePlacePassBase<TilePlace> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (kernel->hasAttr(tile::kKernelAttr) && failed(Placer(kernel).place()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace kdac
