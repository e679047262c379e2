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
  Layout layout = linear(type.getShape(), 16 / bytes);
  for (auto [i, group] : llvm::enumerate(layout.groups)) {
    OpBuilder::InsertionGuard restore(b);
    if (!layout.guards.empty()) {
      auto branch = scf::IfOp::create(b, layout.guards[i], false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    Value ref = scalars.lookup(op.getRef());
    Value valid = validity(ref, op.getValid(), type.getShape(), group);
    Value count = arith::SelectOp::create(b, valid, b.i32(16), b.i32(0));
    Value to = sharedAddress(at.getOffset(), at.getPitch(), type.getElementType(),
                             group.row, group.col, slot);
    NVVM::CpAsyncOp::create(b, to, globalPointer(op, group), 16,
                            NVVM::LoadCacheModifierKind::CG, count);
  }
}

/// Index arithmetic of the loop body as it is in iteration `number`.
static IRMapping scalarsOf(scf::ForOp loop, IRMapping scalars, Value number,
                           OpBuilder &b) {
  scalars.map(loop.getInductionVar(), number);
  for (Operation &op : loop.getBody()->without_terminator())
    if (isa<arith::ArithDialect>(op.getDialect()) &&
        op.getResult(0).getType().isIndex())
      b.clone(op, scalars);
  return scalars;
}

static Value oddTimes(GpuEmitter &b, Value number, int64_t bytes) {
  Value odd = arith::AndIOp::create(b, b.toI32(number), b.i32(1));
  return b.mul(odd, bytes);
}

GpuLowering::Values GpuLowering::startLoads(scf::ForOp loop,
                                            ArrayRef<tile::LoadOp> loads,
                                            Value number) {
  IRMapping present = scalars;
  scalars = scalarsOf(loop, present, number, b);
  Values vectors;
  for (tile::LoadOp load : loads) {
    auto type = load.getResult().getType();
    if (type.getRank() == 2) {
      startCopy(load, oddTimes(b, number, stageBytes(load.getResult())));
      continue;
    }
    // Elements apart in memory are too small to copy asynchronously: each
    // thread keeps one in a register for an iteration.
    Group group;
    group.col = {b.rem(thread, type.getDimSize(0)), 0};
    vectors.push_back(loadGlobal(load, group)[0]);
  }
  NVVM::CpAsyncCommitGroupOp::create(b);
  scalars = present;
  return vectors;
}

void GpuLowering::finishLoads(ArrayRef<tile::LoadOp> loads, Value number,
                              ValueRange vectors) {
  for (tile::LoadOp load : loads) {
    Value result = load.getResult();
    slots[result] = oddTimes(b, number, stageBytes(result));
    auto type = load.getResult().getType();
    if (type.getRank() != 1)
      continue;
    // Threads beyond the vector repeat elements and store equal values.
    Group group;
    group.col = {b.rem(thread, type.getDimSize(0)), 0};
    storeShared(result, group, vectors.front());
    vectors = vectors.drop_front();
  }
  NVVM::CpAsyncWaitGroupOp::create(b, 0);
}

} // namespace kdac
