// Guarded arguments and the check of slot indices.
#include "SlotCheck.h"
#include "TileToHostEmitter.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

void Emitter::emitGuard(GuardOp op) {
  Value ref = scalars.lookup(op.getRef());
  Value null = LLVM::ZeroOp::create(b, loc, ref.getType());
  scalars.map(op.getResult(),
              LLVM::SelectOp::create(b, loc, scalars.lookup(op.getCondition()),
                                     ref, null));
}

void Emitter::emitChoose(ChooseOp op) {
  scalars.map(op.getResult(),
              LLVM::SelectOp::create(b, loc, scalars.lookup(op.getCondition()),
                                     scalars.lookup(op.getRef()),
                                     scalars.lookup(op.getOtherwise())));
}

void Emitter::emitCheckSlots(CheckSlotsOp op) {
  SlotCheck check =
      slotCheckOf(op, [&](Value value) { return scalars.lookup(value); });
  auto branch = scf::IfOp::create(b, loc, isPresent(check.status), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  ImplicitLocOpBuilder builder(loc, b);
  emitStatusReset(builder, check);
  emitSlotCheck(builder, check, index(0), index(1));
}

} // namespace kdac::host
