// Loops over tokens, chunks, keys and rows: what is made before them and ahead
// of an iteration, what crosses them in registers, and the barriers around
// them.
#include "GpuMatmul.h"
#include "GpuTurns.h"

using namespace mlir;

namespace kdac {

/// Multiples of strides must not be kept in registers around the loop either.
/// Returns what the sizes were mapped to.
IRMapping GpuLowering::hideSizes() {
  IRMapping before;
  for (BlockArgument argument : kernel.getArguments()) {
    if (!argument.getType().isIndex())
      continue;
    Value value = scalars.lookup(argument);
    before.map(argument, value);
    scalars.map(argument,
                arith::IndexCastOp::create(b, b.getIndexType(),
                                           b.opaqueSize(b.toI64(value))));
  }
  hideGuards(before);
  return before;
}

bool GpuLowering::sharesMemory() const {
  auto bytes = kernel->getAttrOfType<IntegerAttr>("kdac.shared_bytes");
  return bytes && bytes.getInt() > 0;
}

/// True if an iteration writes to shared memory.
bool GpuLowering::makesShared(scf::ForOp loop) const {
  return llvm::any_of(loop.getBody()->without_terminator(), [&](Operation &op) {
    return (isOneRow() && isa<tile::ReduceOp>(op)) ||
           llvm::any_of(op.getResults(), [&](Value result) {
             return isa<RankedTensorType>(result.getType()) &&
                    home(result) == tile::Home::Shared;
           });
  });
}

/// True if ops behind the loop have places in shared memory.
static bool usesSharedAfter(scf::ForOp loop) {
  for (Operation *op = loop->getNextNode(); op; op = op->getNextNode())
    if (auto places = op->getAttrOfType<ArrayAttr>(tile::kPlaceAttr))
      for (auto at : places.getAsRange<tile::PlaceAttr>())
        if (at.getHome() == tile::Home::Shared)
          return true;
  return false;
}

/// How a loop over tokens or tiles is lowered.
struct GpuLowering::LoopPlan {
  bool isStep; ///< over tokens
  /// A step as a rule has one token. What is staged leaves its registers to the
  /// vectors of the first one, and is loaded behind them, from the L2; a narrow
  /// state has room beside them.
  bool isStaged;
  tile::LoadOp narrow; ///< the narrow state, or null
  /// What comes after all tokens keeps nothing in registers beside their state.
  bool isRare;
  SmallVector<Operation *> head;   ///< lowered before the loop, and at its end
  SmallVector<tile::LoadOp> ahead; ///< of later iterations
  int64_t distance;                ///< how many
  bool buffersTurn; ///< iterations write to shared memory in turn

  bool isHeadFirst() const { return isStaged || narrow; }
};

GpuLowering::LoopPlan GpuLowering::planOf(scf::ForOp loop) {
  LoopPlan plan;
  plan.isStep = schedule.getForm() == "step";
  bool isDeep = plan.isStep && schedule.getStages() > 1;
  plan.isStaged = isDeep && !loop.getInitArgs().empty();
  plan.isRare = isDeep && !plan.isStaged;
  plan.narrow = firstStateOf(loop);
  if (plan.isHeadFirst())
    plan.head = headOf(loop);
  plan.ahead = loadsAhead(loop);
  plan.distance =
      plan.ahead.empty() ? 0 : place(plan.ahead[0].getResult()).getStages() - 1;
  bool isRows = schedule.getForm() == "rows";
  plan.buffersTurn = tile::loopsOverTiles(schedule) ||
                     (isRows && sharesMemory() && makesShared(loop));
  return plan;
}

/// Distributed values cross a loop as their registers.
GpuLowering::Values GpuLowering::registersOf(Value value) {
  if (!isa<RankedTensorType>(value.getType()))
    return Values{scalars.lookup(value)};
  return distribute(value,
                    [&](const Group &group) { return evaluate(value, group); });
}

void GpuLowering::bindRegisters(ValueRange values, ValueRange elements) {
  for (Value value : values) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    int64_t slots = type ? distributed(type.getShape()).slots : 1;
    if (type)
      registers[value] = Values(elements.take_front(slots));
    else
      scalars.map(value, elements.front());
    elements = elements.drop_front(slots);
  }
}

/// The number of a later iteration.
Value GpuLowering::later(scf::ForOp loop, Value number, int64_t iterations) {
  Value step = scalars.lookup(loop.getStep());
  for (int64_t i = 0; i < iterations; ++i)
    number = arith::AddIOp::create(b, number, step);
  return number;
}

/// One iteration. Of the loop's arguments the first `carried` are the tile
/// kernel's, those behind them vectors loaded ahead.
LogicalResult GpuLowering::lowerIteration(scf::ForOp loop, scf::ForOp made,
                                          const LoopPlan &plan,
                                          size_t carried) {
  OpBuilder::InsertionGuard guard(b);
  if (made.getBody()->mightHaveTerminator())
    made.getBody()->getTerminator()->erase();
  b.setInsertionPointToEnd(made.getBody());
  // The bare step form's loop runs once as a rule: nothing is kept around it.
  bool keepsLittle =
      !plan.isStaged && (tile::loopsOverTiles(schedule) || sharesMemory() ||
                         !kernel.getOps<tile::GuardOp>().empty());
  locateThread(keepsLittle ? b.opaqueThread(thread) : thread);
  IRMapping sizes = keepsLittle ? hideSizes() : IRMapping();
  IRMapping known = scalars;
  Value knownBlock = block;
  if (plan.isRare && failed(locateAnew(loop)))
    return failure();
  bindRegisters(loop.getRegionIterArgs(), made.getRegionIterArgs());
  Value number = made.getInductionVar();
  if (!plan.ahead.empty())
    finishLoads(plan.ahead, number,
                made.getRegionIterArgs().drop_front(carried));
  if (plan.buffersTurn)
    synchronise(); // the previous iteration's buffers are free from here on
  Values elements;
  if (!plan.ahead.empty()) {
    elements = loadElements(loop, plan.ahead, later(loop, number, 1));
    startCopies(loop, plan.ahead, later(loop, number, plan.distance));
  }
  Block *body = loop.getBody();
  for (Operation &op : body->without_terminator()) {
    bool isMade = llvm::is_contained(plan.head, &op) &&
                  (isMadeOnce(&op) || isa<tile::StoreOp>(op));
    if (!isMade && !joinsBatch(&op) && failed(lowerOp(&op)))
      return failure();
  }
  flushBatches();
  Values next;
  for (Value yielded : body->getTerminator()->getOperands())
    next.append(registersOf(yielded));
  // Before another token threads must be done with what they share.
  if (plan.isHeadFirst() &&
      failed(lowerNextHead(plan.head, loop, number, next)))
    return failure();
  if (plan.isStep && !plan.isHeadFirst() && sharesMemory())
    b.barrierIf(arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                      later(loop, number, 1),
                                      scalars.lookup(loop.getUpperBound())));
  next.append(elements);
  scf::YieldOp::create(b, next);
  slots.clear();
  if (plan.isRare)
    std::tie(scalars, block) = std::tie(known, knownBlock);
  for (auto [size, value] : sizes.getValueMap())
    scalars.map(size, value);
  return success();
}

/// True if all that comes after the tokens is for sequences that have none:
/// programs with a token are done behind their last one.
static bool isOnlyForNoToken(scf::ForOp loop) {
  auto isEmpty = [&](Value condition) {
    auto is = condition.getDefiningOp<arith::CmpIOp>();
    return is && is.getPredicate() == arith::CmpIPredicate::eq &&
           is.getLhs() == loop.getUpperBound() &&
           getConstantIntValue(is.getRhs()) == 0;
  };
  for (Operation *op = loop->getNextNode(); !isa<func::ReturnOp>(op);
       op = op->getNextNode()) {
    auto store = dyn_cast<tile::StoreOp>(op);
    auto guard =
        store ? store.getRef().getDefiningOp<tile::GuardOp>() : tile::GuardOp();
    bool isForNone = guard && isEmpty(guard.getCondition());
    if (!isForNone && !isMemoryEffectFree(op))
      return false;
  }
  return getConstantIntValue(loop.getLowerBound()) == 0;
}

LogicalResult GpuLowering::lowerLoop(scf::ForOp loop) {
  if (tile::multipliesByWarpgroups(schedule)) {
    if (schedule.getForm() == "matmul")
      return MatmulLowering(*this).run(loop);
    bool isFirst = loop == *kernel.getOps<scf::ForOp>().begin();
    return isFirst ? TurnLowering(*this).run(loop) : success();
  }
  LoopPlan plan = planOf(loop);
  if (plan.narrow && failed(lowerFirstState(plan.narrow, plan.head, loop)))
    return failure();
  if (plan.isStaged && !plan.narrow && failed(lowerFirstHead(plan.head, loop)))
    return failure();
  Values initial;
  for (Value init : loop.getInitArgs())
    initial.append(registersOf(init));
  memo.clear();
  if (!plan.isHeadFirst() && failed(lowerPrefetches()))
    return failure();
  awaitKernelsAhead();
  waits = false;
  if (holdOperands(loop)) // whose place may be a buffer of the loop's
    access({}, llvm::map_to_vector(plan.ahead, [&](tile::LoadOp load) {
             return range(load.getResult());
           }));
  size_t carried = initial.size();
  if (!plan.ahead.empty()) {
    Value first = scalars.lookup(loop.getLowerBound());
    initial.append(loadElements(loop, plan.ahead, first));
    for (int64_t i = 0; i < plan.distance; ++i)
      startCopies(loop, plan.ahead, later(loop, first, i));
  }
  // Rows that only read what was made before the loop need no barrier in it.
  if (schedule.getForm() == "rows" && !plan.buffersTurn &&
      !pendingWrites.empty())
    synchronise();
  // An empty sequence skips the loop and every barrier in it.
  SmallVector<Range> readBefore = pendingReads, writtenBefore = pendingWrites;
  auto made = scf::ForOp::create(b, scalars.lookup(loop.getLowerBound()),
                                 scalars.lookup(loop.getUpperBound()),
                                 scalars.lookup(loop.getStep()), initial);
  if (plan.isStep && !plan.isStaged)
    made->setAttr("llvm.loop_annotation", b.rolled());
  struct {
    Value thread, lane, warp;
    Operation *anchor;
    Layouts layouts;
  } outside{thread, lane, warp, layoutAnchor, std::move(layouts)};
  layouts.clear();
  scalars.map(loop.getInductionVar(), made.getInductionVar());
  if (failed(lowerIteration(loop, made, plan, carried)))
    return failure();
  pendingReads.append(readBefore);
  pendingWrites.append(writtenBefore);
  if (!plan.ahead.empty() && usesSharedAfter(loop)) {
    // Buffers of iterations beyond the last are being filled with zeros.
    NVVM::CpAsyncWaitGroupOp::create(b, 0);
    for (tile::LoadOp load : plan.ahead)
      pendingWrites.push_back(range(load.getResult()));
  }
  memo.clear();
  std::tie(thread, lane, warp) =
      std::tie(outside.thread, outside.lane, outside.warp);
  layoutAnchor = outside.anchor;
  layouts = std::move(outside.layouts);
  bindRegisters(loop.getResults(), made.getResults());
  // What comes after all tokens finds its way again, where it is not the
  // state's usual store, which would wait for indices once more.
  if (!plan.isStaged || plan.narrow)
    return success();
  if (isOnlyForNoToken(loop)) {
    Value ranNever = arith::CmpIOp::create(
        b, arith::CmpIPredicate::eq, scalars.lookup(loop.getUpperBound()),
        scalars.lookup(loop.getLowerBound()));
    withoutToken = scf::IfOp::create(b, ranNever, /*withElse=*/false);
    b.setInsertionPointToStart(withoutToken.thenBlock());
  }
  return locateAnew(loop);
}

} // namespace kdac
