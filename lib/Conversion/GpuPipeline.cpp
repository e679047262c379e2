// Loads that run one iteration ahead of the loop that needs them.
#include "GpuLowering.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

SmallVector<tile::LoadOp> GpuLowering::loadsAhead(scf::ForOp loop) const {
  SmallVector<tile::LoadOp> loads;
  for (auto load : loop.getBody()->getOps<tile::LoadOp>())
    if (home(load.getResult()) == tile::Home::Shared &&
        place(load.getResult()).getStages() > 1)
      loads.push_back(load);
  return loads;
}

int64_t GpuLowering::stageBytes(Value value) const {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t elements = type.getRank() == 2
                         ? type.getDimSize(0) * place(value).getPitch()
                         : type.getDimSize(0);
  return llvm::alignTo(elements * bytesOf(type.getElementType()), 16);
}

/// Copies whole 16-byte pieces without passing registers; pieces outside the
/// valid part are filled with zeros and not read.
void GpuLowering::startCopy(tile::LoadOp op, Value slot) {
  auto type = op.getResult().getType();
  int64_t bytes = bytesOf(type.getElementType());
  tile::PlaceAttr at = place(op.getResult());
  Layout layout =
      linear(type.getShape(), 16 / bytes); // rows, or a whole vector
  for (auto [i, group] : llvm::enumerate(layout.groups)) {
    OpBuilder::InsertionGuard restore(b);
    if (!layout.guards.empty()) {
      auto branch = scf::IfOp::create(b, layout.guards[i], false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    Value ref = scalars.lookup(op.getRef());
    Value valid = validity(ref, op.getValid(), type.getShape(), group);
    Value count = arith::SelectOp::create(b, valid, b.i32(16), b.i32(0));
    Value to = sharedAddress(at.getOffset(), at.getPitch(),
                             type.getElementType(), group.row, group.col, slot);
    NVVM::CpAsyncOp::create(b, to, globalPointer(op, group), 16,
                            NVVM::LoadCacheModifierKind::CG, count);
  }
}

/// Where a thread keeps 16-byte piece `number` of a staged tile between tokens:
/// beside the same piece of the other threads.
Value GpuLowering::pieceAddress(tile::LoadOp staged, int64_t number) {
  return b.bytes(sharedBase, b.mul(thread, 16),
                 place(staged.getResult()).getOffset() + number * threads * 16);
}

/// Index arithmetic of the loop body, and the indices that it reads, as they
/// are in iteration `number`.
void GpuLowering::locateIteration(scf::ForOp loop, Value number) {
  // Pages are found through indices; where chunks lie follows from the number.
  bool isPaged = schedule.getForm() == "attention";
  scalars.map(loop.getInductionVar(), number);
  for (Operation &op : loop.getBody()->without_terminator()) {
    auto isNeeded = [&](Value x) {
      return isPaged ? x.getType().isIntOrIndex() : x.getType().isIndex();
    };
    auto guard = dyn_cast<tile::GuardOp>(op);
    auto load = dyn_cast<tile::LoadScalarOp>(op);
    if (isPaged && guard)
      lowerGuard(guard);
    else if (isPaged && load)
      lowerLoadScalar(load);
    else if (isa<arith::ArithDialect>(op.getDialect()) &&
             llvm::all_of(op.getResults(), isNeeded))
      b.clone(op, scalars);
  }
}

/// Bytes to the buffer of iteration `number`: they take turns.
Value GpuLowering::slotOf(Value value, Value number) {
  int64_t stages = place(value).getStages();
  Value turn = arith::RemUIOp::create(b, b.toI32(number), b.i32(stages));
  return b.mul(turn, stageBytes(value));
}

/// Vectors whose elements lie apart in memory are too small to copy
/// asynchronously: each thread keeps an element in a register for an iteration.
static bool goesThroughRegister(tile::LoadOp load) {
  return load.getResult().getType().getRank() == 1 &&
         (getConstantIntValue(load.getStride()) != 1 || load.getAlign() < 16);
}

void GpuLowering::startCopies(scf::ForOp loop, ArrayRef<tile::LoadOp> loads,
                              Value number) {
  IRMapping present = scalars;
  locateIteration(loop, number);
  for (tile::LoadOp load : loads)
    if (!goesThroughRegister(load))
      startCopy(load, slotOf(load.getResult(), number));
  NVVM::CpAsyncCommitGroupOp::create(b);
  scalars = present;
}

GpuLowering::Values GpuLowering::loadElements(scf::ForOp loop,
                                              ArrayRef<tile::LoadOp> loads,
                                              Value number) {
  IRMapping present = scalars;
  if (schedule.getForm() == "attention" &&
      llvm::none_of(loads, goesThroughRegister))
    return {};
  locateIteration(loop, number);
  Values elements;
  for (tile::LoadOp load : loads)
    if (goesThroughRegister(load))
      elements.push_back(loadGlobal(load, elementGroup(load))[0]);
  scalars = present;
  return elements;
}

/// Threads beyond the vector repeat elements, and store equal values.
Group GpuLowering::elementGroup(tile::LoadOp load) {
  Group group;
  group.col = {b.rem(thread, load.getResult().getType().getDimSize(0)), 0};
  return group;
}

void GpuLowering::finishLoads(ArrayRef<tile::LoadOp> loads, Value number,
                              ValueRange elements) {
  for (tile::LoadOp load : loads) {
    slots[load.getResult()] = slotOf(load.getResult(), number);
    if (!goesThroughRegister(load))
      continue;
    storeShared(load.getResult(), elementGroup(load), elements.front());
    elements = elements.drop_front();
  }
  tile::LoadOp first = loads.front();
  int64_t stages = place(first.getResult()).getStages();
  NVVM::CpAsyncWaitGroupOp::create(b, stages - 2);
}

} // namespace kdac
