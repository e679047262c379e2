// Loads from global memory: where a group of elements lies, whether it is
// there, and its elements as numbers, words or bits.
#include "GpuAccess.h"

using namespace mlir;

namespace kdac {

/// Only of rows that are valid. Numbers of entries fit 32 bits.
Value GpuLowering::pickedRow(tile::LoadOp op, Coord row) {
  auto kept = pickedRows.find({op.getOperation(), row});
  if (kept != pickedRows.end())
    return kept->second;
  auto number = [&](Value index) { return scalars.lookup(index); };
  Value order = number(op.getOrder()), place = b.at(row);
  Value entry = b.add(b.toI64(number(op.getFirst())), b.toI64(place));
  Value isGiven = b.isPresent(order);
  Value isValid = b.less(place, b.toI32(number(op.getValid()[0])));
  Value found = b.loadScalarIf(arith::AndIOp::create(b, isGiven, isValid),
                               b.pointer(order, entry, b.getI32Type()),
                               b.getI32Type(), b.i64(0));
  Value picked =
      arith::DivSIOp::create(b, b.toI32(found), b.toI32(number(op.getEach())));
  Value at =
      arith::SelectOp::create(b, isGiven, b.toI64(picked), entry).getResult();
  Value last = b.add64(b.toI64(number(op.getCount())), -1);
  at = arith::MinSIOp::create(b, at, last);
  return arith::MaxSIOp::create(b, at, b.i64(0));
}

void GpuLowering::keepPickedRow(tile::LoadOp op, Coord row) {
  pickedRows[{op.getOperation(), row}] = pickedRow(op, row);
}

/// The thread's part of an address and the constant part are added one after
/// the other, so that a tile's groups share the first.
Value GpuLowering::globalPointer(const Access &at, const Group &group,
                                 int64_t number) {
  Coord row = group.along == 0 ? group.row.plus(number) : group.row;
  Coord col = group.along == 1 ? group.col.plus(number) : group.col;
  Coord line = at.transposed || at.isVector ? col : row;
  Coord inside = at.transposed ? row : col;
  if (at.isVector)
    inside = {};
  Value variable = at.base;
  if (at.picks) {
    variable = b.add(variable, b.mul64(pickedRow(at.picks, line), at.stride));
    line = {};
  }
  if (line.base)
    variable = b.add(variable, b.mul64(b.toI64(line.base), at.stride));
  if (inside.base)
    variable = b.add(variable, b.toI64(inside.base));
  Value pointer = b.pointer(at.ref, variable, at.element);
  if (line.offset == 0 && inside.offset == 0)
    return pointer;
  Value constant =
      b.add(b.mul64(b.i64(line.offset), at.stride), b.i64(inside.offset));
  return b.pointer(pointer, constant, at.element);
}

Value GpuLowering::globalPointer(tile::LoadOp op, const Group &group) {
  return globalPointer(accessOf(op, op.getResult().getType()), group, 0);
}

Value GpuLowering::validity(Value ref, ValueRange valid,
                            ArrayRef<int64_t> shape, const Group &group) {
  return inside(b.isPresent(ref), valid, shape, group);
}

Value GpuLowering::validityOf(Value ref, ValueRange valid,
                              ArrayRef<int64_t> shape, const Group &group) {
  if (knownWhole)
    return {};
  return inside(presence(ref), valid, shape, group);
}

Value GpuLowering::inside(Value condition, ValueRange valid,
                          ArrayRef<int64_t> shape, const Group &group) {
  if (knownWhole)
    return {};
  auto within = [&](Coord first, int64_t width, Value limit, int64_t size) {
    if (isWhole(limit, size))
      return;
    Value bound = b.toI32(scalars.lookup(limit));
    Value inside = b.less(b.at(first.plus(width - 1)), bound);
    condition = arith::AndIOp::create(b, condition, inside);
  };
  if (shape.size() == 1) {
    within(group.col, group.width, valid[0], shape[0]);
    return condition;
  }
  within(group.row, group.along == 0 ? group.width : 1, valid[0], shape[0]);
  within(group.col, group.along == 1 ? group.width : 1, valid[1], shape[1]);
  return condition;
}

/// True if a group's elements are consecutive in memory.
bool GpuLowering::isContiguous(const Access &at, const Group &group) {
  return at.isVector ? at.isDense : group.along == (at.transposed ? 0 : 1);
}

GpuLowering::Values GpuLowering::loadPresent(tile::LoadOp op,
                                             const Access &access,
                                             const Group &group,
                                             bool invariant) {
  int64_t bytes = bytesOf(access.element);
  if (isContiguous(access, group)) {
    int64_t align = std::min<int64_t>(op.getAlign(), group.width * bytes);
    return b.load(globalPointer(access, group, 0), access.element, group.width,
                  align, invariant);
  }
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.push_back(b.load(globalPointer(access, group, i), access.element,
                              1, bytes, invariant)[0]);
  return elements;
}

GpuLowering::Values GpuLowering::loadPresent(tile::LoadOp op,
                                             const Group &group) {
  return loadPresent(op, accessOf(op, op.getResult().getType()), group,
                     /*invariant=*/false);
}

/// Without a branch: in the step form all of a token's loads are in flight
/// together.
GpuLowering::Values GpuLowering::loadIf(const Access &access, int64_t align,
                                        const Group &group, Value condition,
                                        bool invariant) {
  int64_t bytes = bytesOf(access.element);
  if (isContiguous(access, group))
    return b.loadIf(condition, globalPointer(access, group, 0), access.element,
                    group.width, std::min(align, group.width * bytes),
                    invariant);
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.append(b.loadIf(condition, globalPointer(access, group, i),
                             access.element, 1, bytes, invariant));
  return elements;
}

/// The words of a group as they are in memory.
GpuLowering::Values GpuLowering::loadWords(tile::LoadOp op,
                                           const Group &group) {
  RankedTensorType type = op.getResult().getType();
  Access at = accessOf(op, type);
  int64_t bytes = group.width * bytesOf(at.element);
  return b.loadWordsIf(
      validityOf(op.getRef(), op.getValid(), type.getShape(), group),
      globalPointer(at, group, 0), bytesOf(at.element) == 2, bytes / 4,
      std::min<int64_t>(op.getAlign(), bytes), /*invariant=*/false);
}

/// A choice between two arguments is a load from each, under opposite
/// predicates: no pointer, base or stride is a select's.
GpuLowering::Values GpuLowering::loadIf(tile::LoadOp op, const Group &group,
                                        bool invariant) {
  RankedTensorType type = op.getResult().getType();
  Access access = accessOf(op, type);
  auto loadFrom = [&](Value ref, Value base, Value stride, Value when) {
    if (auto entries = loadEntries(op, ref, base, stride, group, invariant))
      return *entries;
    Access at = access;
    at.ref = scalars.lookup(ref);
    at.base = b.toI64(scalars.lookup(base));
    at.stride = b.toI64(scalars.lookup(stride));
    at.isDense |= getConstantIntValue(stride) == 1;
    Value valid = validityOf(ref, op.getValid(), type.getShape(), group);
    if (when)
      valid = arith::AndIOp::create(b, when, valid);
    return loadIf(at, op.getAlign(), group, valid, invariant);
  };
  auto choice = op.getRef().getDefiningOp<tile::ChooseOp>();
  if (!choice)
    return loadFrom(op.getRef(), op.getBase(), op.getStride(), {});
  auto pick = [&](Value value, bool isFirst) {
    auto select = value.getDefiningOp<arith::SelectOp>();
    if (!select || select.getCondition() != choice.getCondition())
      return value;
    return isFirst ? select.getTrueValue() : select.getFalseValue();
  };
  auto loadChosen = [&](Value ref, bool isFirst, Value when) {
    return loadFrom(ref, pick(op.getBase(), isFirst),
                    pick(op.getStride(), isFirst), when);
  };
  Value first = scalars.lookup(choice.getCondition());
  Value second = arith::XOrIOp::create(
      b, first, arith::ConstantOp::create(b, b.getBoolAttr(true)));
  Values a = loadChosen(choice.getRef(), true, first);
  Values c = loadChosen(choice.getOtherwise(), false, second);
  for (auto [x, y] : llvm::zip(a, c))
    x = arith::SelectOp::create(b, first, x, y);
  return a;
}

GpuLowering::Values GpuLowering::loadGlobal(tile::LoadOp op,
                                            const Group &group) {
  RankedTensorType type = op.getResult().getType();
  // What a kernel reads inside its loop it never writes; the state it may.
  // Rows may be of any place, and what came before may still write them when
  // the kernel begins.
  bool invariant = op->getParentOfType<scf::ForOp>() &&
                   !isWritten(op.getRef()) && !isOneRow();
  if (schedule.getForm() == "step" || isOneRow())
    return loadIf(op, group, invariant);
  Access access = accessOf(op, type);
  Value condition =
      validityOf(op.getRef(), op.getValid(), type.getShape(), group);
  if (!condition)
    return loadPresent(op, access, group, invariant);
  SmallVector<Type> types(group.width, b.getF32Type());
  auto branch = scf::IfOp::create(b, types, condition, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loadPresent(op, access, group, invariant));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, Values(group.width, b.f32(0)));
  return Values(branch.getResults());
}

Value GpuLowering::globalPointer(tile::StoreOp op, const Group &group) {
  return globalPointer(
      accessOf(op, cast<RankedTensorType>(op.getValue().getType())), group, 0);
}

Value GpuLowering::loadGlobalRaw(tile::LoadOp op, const Group &group,
                                 Value guard) {
  RankedTensorType type = op.getResult().getType();
  Access at = accessOf(op, type);
  int64_t bytes = group.width * bytesOf(at.element);
  auto words = VectorType::get({bytes / 4}, b.getI32Type());
  Value condition =
      validityOf(op.getRef(), op.getValid(), type.getShape(), group);
  if (guard)
    condition = arith::AndIOp::create(b, condition, guard);
  auto branch = scf::IfOp::create(b, TypeRange{words}, condition, true);
  OpBuilder::InsertionGuard restore(b);
  b.setInsertionPointToStart(branch.thenBlock());
  auto load = LLVM::LoadOp::create(b, words, globalPointer(at, group, 0),
                                   std::min<int64_t>(op.getAlign(), bytes));
  load.setInvariant(true);
  scf::YieldOp::create(b, load.getResult());
  b.setInsertionPointToStart(branch.elseBlock());
  Value zero = LLVM::ZeroOp::create(b, words);
  scf::YieldOp::create(b, zero);
  return branch.getResult(0);
}

Value GpuLowering::loadBits(tile::LoadOp op, const Group &group) {
  RankedTensorType type = op.getResult().getType();
  Access at = accessOf(op, type);
  Type bits = b.getIntegerType(8 * bytesOf(at.element));
  Value condition =
      validityOf(op.getRef(), op.getValid(), type.getShape(), group);
  auto branch = scf::IfOp::create(b, TypeRange{bits}, condition, true);
  OpBuilder::InsertionGuard restore(b);
  b.setInsertionPointToStart(branch.thenBlock());
  auto load = LLVM::LoadOp::create(b, bits, globalPointer(at, group, 0),
                                   bytesOf(at.element));
  load.setInvariant(!isWritten(op.getRef()));
  scf::YieldOp::create(b, load.getResult());
  b.setInsertionPointToStart(branch.elseBlock());
  Value zero = LLVM::ZeroOp::create(b, bits);
  scf::YieldOp::create(b, zero);
  return branch.getResult(0);
}

} // namespace kdac
