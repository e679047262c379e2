// A step kernel's tokens: what the loop over them makes before it needs the
// state, ahead of the loop and at its end; and the wait for kernels ahead.
#include "GpuLowering.h"

using namespace mlir;

namespace kdac {

static bool isTile(Value value) {
  return isa<RankedTensorType>(value.getType());
}

/// In the step form as late as can be: behind the request for the state, before
/// the first access to what kernels ahead may have written.
void GpuLowering::lowerAwaitLaunch() {
  if (schedule.getForm() == "step")
    waits = true;
  else
    b.awaitLaunch();
}

/// Together with the wait: those behind this kernel may overlap with it alone.
void GpuLowering::lowerStartNext() {
  if (!waits)
    b.startNext();
}

void GpuLowering::awaitKernelsAhead() {
  if (!waits)
    return;
  b.awaitLaunch();
  b.startNext();
}

/// What a loop's body does before it needs what the loop carries.
SmallVector<Operation *> GpuLowering::headOf(scf::ForOp loop) {
  SmallVector<Operation *> head;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (llvm::any_of(op.getOperands(), [&](Value x) {
          return llvm::is_contained(loop.getRegionIterArgs(), x);
        }))
      break;
    head.push_back(&op);
  }
  return head;
}

/// Makes the vectors of iteration `number`.
LogicalResult GpuLowering::lowerHead(ArrayRef<Operation *> head,
                                     scf::ForOp loop, Value number) {
  scalars.map(loop.getInductionVar(), number);
  for (Operation *op : head)
    if (!joinsBatch(op) && failed(lowerOp(op)))
      return failure();
  flushBatches();
  return success();
}

/// Those of the first iteration, if there is one. Every thread waits for the
/// kernels ahead, in the branches: in front of them ptxas would wait before it
/// asks for the state.
LogicalResult GpuLowering::lowerFirstHead(ArrayRef<Operation *> head,
                                          scf::ForOp loop) {
  Value first = scalars.lookup(loop.getLowerBound());
  auto branch = scf::IfOp::create(
      b,
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, first,
                            scalars.lookup(loop.getUpperBound())),
      true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  awaitKernelsAhead();
  b.setInsertionPointToStart(branch.thenBlock());
  awaitKernelsAhead();
  waits = false;
  if (failed(lowerHead(head, loop, first)))
    return failure();
  return lowerPrefetches(); // where no vector was made
}

/// The load of the state where that is staged in shared memory.
tile::LoadOp GpuLowering::stagedState() {
  for (auto load : kernel.getOps<tile::LoadOp>())
    if (home(load.getResult()) == tile::Home::Staged)
      return load;
  return {};
}

/// True if `loop` keeps a state, or rows in the workspace, of every token: then
/// it is made for several.
static bool keepsTokens(scf::ForOp loop) {
  return llvm::any_of(loop.getOps<tile::StoreOp>(), [](tile::StoreOp store) {
    Value ref = store.getRef();
    while (auto guard = ref.getDefiningOp<tile::GuardOp>())
      ref = guard.getRef();
    return cast<RankedTensorType>(store.getValue().getType()).getRank() == 2 ||
           ref.getDefiningOp<tile::ViewOp>();
  });
}

/// Where `loop` begins with a narrow state, as a rule for one token: its load.
tile::LoadOp GpuLowering::firstStateOf(scf::ForOp loop) const {
  if (schedule.getForm() != "step" || loop.getInitArgs().size() != 1 ||
      keepsTokens(loop))
    return {};
  auto widened = loop.getInitArgs()[0].getDefiningOp<arith::ExtFOp>();
  return widened ? widened.getIn().getDefiningOp<tile::LoadOp>()
                 : tile::LoadOp();
}

/// Asks for the state, then makes the first token's vectors. The state stays
/// as it is in memory meanwhile: what widens it waits for it.
LogicalResult GpuLowering::lowerFirstState(tile::LoadOp state,
                                           ArrayRef<Operation *> head,
                                           scf::ForOp loop) {
  ArrayRef<Group> groups =
      distributed(state.getResult().getType().getShape()).groups;
  auto words = llvm::map_to_vector(
      groups, [&](const Group &group) { return loadWords(state, group); });
  if (failed(lowerFirstHead(head, loop)))
    return failure();
  for (auto [group, some] : llvm::zip(groups, words)) {
    Values here;
    for (Value word : some)
      here.push_back(b.opaqueWord(word));
    remember(state.getResult(), group, b.unpack(here, stateElement));
  }
  return success();
}

/// Where the program is and what it reads, as the ops before `loop` say: found
/// out anew, so that nothing is kept for what follows.
LogicalResult GpuLowering::locateAnew(scf::ForOp loop) {
  hideSizes();
  thread = b.opaqueThread(thread);
  block = b.opaqueThread(block);
  for (Operation &op : *loop->getBlock()) {
    if (&op == loop)
      break;
    bool isScalar = op.getNumResults() == 1 && !isTile(op.getResult(0));
    if (isScalar && !isFoundLate(&op) && failed(lowerOp(&op)))
      return failure();
  }
  return success();
}

/// Those of the iteration after `number`, if there is one, once all threads are
/// done with the present ones. What is staged leaves its registers meanwhile:
/// as a rule there is no next token.
LogicalResult GpuLowering::lowerNextHead(ArrayRef<Operation *> head,
                                         scf::ForOp loop, Value number,
                                         Values &carried) {
  Value next = arith::AddIOp::create(b, b.opaqueSize(b.toI64(number)),
                                     b.toI64(scalars.lookup(loop.getStep())));
  Value end = b.toI64(scalars.lookup(loop.getUpperBound()));
  auto branch = scf::IfOp::create(
      b, ValueRange(carried).getTypes(),
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, next, end), true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, carried);
  b.setInsertionPointToStart(branch.thenBlock());
  tile::LoadOp staged = stagedState();
  for (size_t i = 0; staged && i < carried.size(); i += 4)
    b.store(ArrayRef(carried).slice(i, 4), pieceAddress(staged, i / 4),
            b.getF32Type(), 16);
  synchronise();
  IRMapping known = scalars;
  Value knownThread = thread, knownBlock = block;
  if (failed(locateAnew(loop)))
    return failure();
  LogicalResult made = lowerHead(
      head, loop, arith::IndexCastOp::create(b, b.getIndexType(), next));
  scalars = known;
  thread = knownThread;
  block = knownBlock;
  Values again = staged ? Values() : carried;
  for (size_t i = 0; staged && i < carried.size(); i += 4)
    again.append(b.load(pieceAddress(staged, i / 4), b.getF32Type(), 4, 16));
  if (storesInBulk()) // where pieces of other warps may still wait
    b.barrier();
  scf::YieldOp::create(b, again);
  carried.assign(branch.getResults().begin(), branch.getResults().end());
  return made;
}

} // namespace kdac
