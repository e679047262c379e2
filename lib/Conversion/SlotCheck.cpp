#include "SlotCheck.h"
#include "kdac/Variant/SlotFault.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace kdac {

namespace {

class Emitter {
public:
  Emitter(ImplicitLocOpBuilder &b, const SlotCheck &check) : b(b), at(check) {}

  void checkSequence(Value n);
  void checkSnapshot(Value token);
  void loop(Value first, Value end, Value step,
            llvm::function_ref<void(Value)> body);
  Value allTokens();

private:
  using Predicate = arith::CmpIPredicate;
  Value number(int64_t x) {
    return arith::ConstantOp::create(b, b.getI64IntegerAttr(x));
  }
  Value no() { return arith::ConstantOp::create(b, b.getBoolAttr(false)); }
  Value compare(Predicate how, Value x, Value y) {
    return arith::CmpIOp::create(b, how, x, y);
  }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
  Value present(Value pointer) {
    Value null = LLVM::ZeroOp::create(b, pointer.getType());
    return LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, pointer, null);
  }
  Value load(Value pointer, Type type, Value i, Value otherwise);
  Value slot(Value n) { return load(at.slots, at.slotType, n, n); }
  Value source(Value n) { return load(at.sources, at.slotType, n, slot(n)); }
  Value offset(Value n) {
    return load(at.offsets, at.offsetType, n,
                arith::MulIOp::create(b, n, at.tokens));
  }
  /// Below -1, or not below the pool's size.
  Value outside(Value index) {
    return either(compare(Predicate::slt, index, number(-1)),
                  compare(Predicate::sge, index, at.pool));
  }
  Value isSlot(Value index) {
    return compare(Predicate::sge, index, number(0));
  }
  /// True if `holds` does for some i in [0, end).
  Value any(Value end, llvm::function_ref<Value(Value)> holds);
  void report(Value bad, Value entry, SlotFault fault);

  ImplicitLocOpBuilder &b;
  const SlotCheck &at;
};

} // namespace

Value Emitter::load(Value pointer, Type type, Value i, Value otherwise) {
  Type i64 = b.getI64Type();
  auto branch = scf::IfOp::create(b, TypeRange{i64}, present(pointer), true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value address = LLVM::GEPOp::create(b, pointer.getType(), type, pointer,
                                      ArrayRef<LLVM::GEPArg>{i});
  Value raw = LLVM::LoadOp::create(b, type, address);
  if (!type.isInteger(64))
    raw = arith::ExtSIOp::create(b, i64, raw);
  scf::YieldOp::create(b, raw);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, otherwise);
  return branch.getResult(0);
}

void Emitter::loop(Value first, Value end, Value step,
                   llvm::function_ref<void(Value)> body) {
  auto made = scf::ForOp::create(b, first, end, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  body(made.getInductionVar());
}

Value Emitter::any(Value end, llvm::function_ref<Value(Value)> holds) {
  auto made =
      scf::ForOp::create(b, number(0), end, number(1), ValueRange{no()});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  Value found = either(made.getRegionIterArg(0), holds(made.getInductionVar()));
  scf::YieldOp::create(b, found);
  return made.getResult(0);
}

void Emitter::report(Value bad, Value entry, SlotFault fault) {
  auto branch = scf::IfOp::create(b, bad, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value word = arith::AddIOp::create(
      b, arith::MulIOp::create(b, entry, number(slotFaultKinds)),
      number(fault));
  // As unsigned numbers -1 is the largest.
  LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::umin, at.status, word,
                            LLVM::AtomicOrdering::monotonic);
}

void Emitter::checkSequence(Value n) {
  Value mine = slot(n), from = source(n);
  report(outside(mine), n, SlotRange);
  Value twice =
      any(n, [&](Value m) { return compare(Predicate::eq, slot(m), mine); });
  report(both(isSlot(mine), twice), n, SlotTwice);
  report(outside(from), n, SourceRange);
  // With snapshots nothing is written to slots.
  Value writes = present(at.sources);
  if (at.snapshots) {
    Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
    writes = both(writes, arith::XOrIOp::create(b, present(at.snapshots), yes));
  }
  Value taken = any(at.count, [&](Value m) {
    return both(compare(Predicate::ne, m, n),
                compare(Predicate::eq, slot(m), from));
  });
  report(both(both(isSlot(from), writes), taken), n, SourceWritten);
}

/// A snapshot may replace what its own sequence started from: that was read
/// before.
void Emitter::checkSnapshot(Value token) {
  Value mine = load(at.snapshots, at.slotType, token, number(-1));
  report(outside(mine), token, SnapshotRange);
  Value twice = any(token, [&](Value other) {
    return compare(Predicate::eq,
                   load(at.snapshots, at.slotType, other, number(-1)), mine);
  });
  Value taken = any(at.count, [&](Value n) {
    Value next = arith::AddIOp::create(b, n, number(1));
    Value isOther = either(compare(Predicate::slt, token, offset(n)),
                           compare(Predicate::sge, token, offset(next)));
    return both(isOther, compare(Predicate::eq, source(n), mine));
  });
  report(both(isSlot(mine), either(twice, taken)), token, SnapshotTaken);
}

/// Tokens of the call: the buffer's with offsets, N * T without.
Value Emitter::allTokens() {
  Value dense = arith::MulIOp::create(b, at.count, at.tokens);
  return arith::SelectOp::create(b, present(at.offsets), at.tokens, dense);
}

SlotCheck slotCheckOf(tile::CheckSlotsOp op,
                      llvm::function_ref<Value(Value)> lookup) {
  SlotCheck check;
  check.status = lookup(op.getStatus());
  check.slots = lookup(op.getSlots());
  check.sources = lookup(op.getSources());
  if (op.getSnapshots())
    check.snapshots = lookup(op.getSnapshots());
  check.offsets = lookup(op.getOffsets());
  check.count = lookup(op.getCount());
  check.tokens = lookup(op.getTokens());
  check.pool = lookup(op.getPool());
  check.slotType = op.getSlots().getType().getElementType();
  check.offsetType = op.getOffsets().getType().getElementType();
  return check;
}

void emitStatusReset(ImplicitLocOpBuilder &b, const SlotCheck &check) {
  Value none = arith::ConstantOp::create(b, b.getI64IntegerAttr(-1));
  LLVM::StoreOp::create(b, none, check.status);
}

void emitSlotCheck(ImplicitLocOpBuilder &b, const SlotCheck &check, Value first,
                   Value step) {
  Emitter emitter(b, check);
  emitter.loop(first, check.count, step,
               [&](Value n) { emitter.checkSequence(n); });
  if (!check.snapshots)
    return;
  Value given =
      LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, check.snapshots,
                           LLVM::ZeroOp::create(b, check.snapshots.getType()));
  auto branch = scf::IfOp::create(b, given, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emitter.loop(first, emitter.allTokens(), step,
               [&](Value token) { emitter.checkSnapshot(token); });
}

} // namespace kdac
