// Guarded arguments and the check of slot indices.
#include "GpuLowering.h"
#include "SlotCheck.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// i1: the argument was given, and no guard holds it back.
Value GpuLowering::presence(Value ref) {
  auto guard = ref.getDefiningOp<tile::GuardOp>();
  if (!guard || schedule.getForm() != "step")
    return b.isPresent(scalars.lookup(ref));
  Value condition = scalars.lookup(guard.getCondition());
  return arith::AndIOp::create(b, condition, presence(guard.getRef()));
}

/// In the step form a predicate of each access, which keeps the pointer what
/// it is: a parameter, in no register.
void GpuLowering::lowerGuard(tile::GuardOp op) {
  Value ref = scalars.lookup(op.getRef());
  if (schedule.getForm() == "step")
    return scalars.map(op.getResult(), ref);
  Value null = LLVM::ZeroOp::create(b, ref.getType());
  scalars.map(
      op.getResult(),
      LLVM::SelectOp::create(b, scalars.lookup(op.getCondition()), ref, null));
}

/// Guarded pointers are two registers each around the loop, but cheap to make
/// again in it: their conditions are hidden, as sizes are.
void GpuLowering::hideGuards(IRMapping &before) {
  if (schedule.getForm() == "step")
    return;
  DenseMap<Value, Value> conditions;
  for (auto guard : kernel.getOps<tile::GuardOp>()) {
    Value old = scalars.lookupOrNull(guard.getResult());
    if (!old)
      continue; // after the loop
    Value &hidden = conditions[guard.getCondition()];
    if (!hidden) {
      Value condition = scalars.lookup(guard.getCondition());
      Value number = arith::ExtUIOp::create(b, b.getI64Type(), condition);
      hidden = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                     b.opaqueSize(number), b.i64(0));
    }
    before.map(guard.getResult(), old);
    Value ref = scalars.lookup(guard.getRef());
    Value null = LLVM::ZeroOp::create(b, ref.getType());
    scalars.map(guard.getResult(),
                LLVM::SelectOp::create(b, hidden, ref, null));
  }
}

void GpuLowering::lowerChoose(tile::ChooseOp op) {
  scalars.map(op.getResult(),
              LLVM::SelectOp::create(b, scalars.lookup(op.getCondition()),
                                     scalars.lookup(op.getRef()),
                                     scalars.lookup(op.getOtherwise())));
}

/// True of a scalar that only tells held prefetches what to ask for.
static bool servesPrefetches(Operation *op) {
  return op->getNumResults() == 1 && op->getNumRegions() == 0 &&
         !op->hasTrait<OpTrait::ConstantLike>() &&
         !isa<RankedTensorType>(op->getResult(0).getType()) &&
         !op->use_empty() && llvm::all_of(op->getUsers(), [](Operation *user) {
           auto prefetch = dyn_cast<tile::PrefetchOp>(user);
           return prefetch ? !prefetch.getNow() : servesPrefetches(user);
         });
}

/// True if `op` comes with the prefetches it serves, so that the state's loads
/// do not wait for it. Not where those stand among the loads of vectors, which
/// would wait for it instead.
bool GpuLowering::isFoundLate(Operation *op) {
  return schedule.getForm() == "step" && schedule.getStages() == 1 &&
         servesPrefetches(op) &&
         llvm::none_of(kernel.getOps<scf::ForOp>(),
                       [&](scf::ForOp loop) { return firstStateOf(loop); });
}

/// Behind the loads that are needed at once.
LogicalResult GpuLowering::lowerPrefetches() {
  if (heldPrefetches.empty())
    return success();
  for (Operation &op : kernel.getBody().front())
    if (isFoundLate(&op) && failed(lowerOp(&op)))
      return failure();
  for (tile::PrefetchOp prefetch : std::exchange(heldPrefetches, {}))
    lowerPrefetch(prefetch);
  return success();
}

/// Line by line into the L2, without a register for the data.
void GpuLowering::lowerPrefetch(tile::PrefetchOp op) {
  constexpr int64_t line = 128;
  Value ref = scalars.lookup(op.getRef());
  Type element = op.getRef().getType().getElementType();
  Value base = b.pointer(ref, b.toI64(scalars.lookup(op.getBase())), element);
  int64_t lines = llvm::divideCeil(op.getCount() * bytesOf(element), line);
  Value given = presence(op.getRef());
  for (int64_t first = 0; first < lines; first += threads) {
    Value number = b.add(thread, first);
    Value wanted = given;
    if (lines - first < threads)
      wanted = arith::AndIOp::create(b, given, b.less(number, b.i32(lines)));
    auto branch = scf::IfOp::create(b, wanted, false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value address = b.bytes(base, b.mul(number, line), 0);
    LLVM::InlineAsmOp::create(
        b, TypeRange(), ValueRange{address}, "prefetch.global.L2 [$0];", "l",
        /*has_side_effects=*/true,
        /*is_align_stack=*/false, LLVM::TailCallKind::None,
        LLVM::AsmDialectAttr(), ArrayAttr());
  }
}

/// One block: its threads take the entries in turn.
void GpuLowering::lowerCheckSlots(tile::CheckSlotsOp op) {
  SlotCheck check = slotCheckOf(op, [&](Value value) {
    Value mapped = scalars.lookup(value);
    return mapped.getType().isIndex() ? b.toI64(mapped) : mapped;
  });
  auto branch = scf::IfOp::create(b, b.isPresent(check.status), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value isFirst = b.equal(thread, b.i32(0));
  auto first = scf::IfOp::create(b, isFirst, false);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(first.thenBlock());
    emitStatusReset(b, check);
  }
  b.barrier();
  emitSlotCheck(b, check, b.toI64(thread), b.i64(threads));
}

} // namespace kdac
