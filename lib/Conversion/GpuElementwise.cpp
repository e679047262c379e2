// Elementwise values, computed where they are consumed.
#include "GpuLowering.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool GpuLowering::hasRegisterLeaf(Value value) const {
  if (!isa<RankedTensorType>(value.getType()))
    return false;
  tile::Home where = home(value);
  if (where != tile::Home::Inline)
    return where == tile::Home::Registers;
  return llvm::any_of(value.getDefiningOp()->getOperands(),
                      [&](Value operand) { return hasRegisterLeaf(operand); });
}

void GpuLowering::sharedLeaves(Value value,
                               SmallVectorImpl<Value> &leaves) const {
  if (!isa<RankedTensorType>(value.getType()))
    return;
  tile::Home where = home(value);
  if (where == tile::Home::Shared)
    leaves.push_back(value);
  if (where != tile::Home::Inline)
    return;
  for (Value operand : value.getDefiningOp()->getOperands())
    sharedLeaves(operand, leaves);
}

Value GpuLowering::sharedAddress(int64_t offset, int64_t pitch, Type element,
                                 Coord row, Coord col, Value slot) {
  int64_t bytes = bytesOf(element);
  Value index;
  if (row.base)
    index = b.mul(row.base, pitch);
  if (col.base)
    index = index ? b.add(index, col.base) : col.base;
  Value variable = index ? b.mul(index, bytes) : Value();
  if (slot)
    variable = variable ? b.add(variable, slot) : slot;
  return b.bytes(sharedBase, variable,
                 offset + (row.offset * pitch + col.offset) * bytes);
}

GpuLowering::Values GpuLowering::loadShared(Value value, const Group &group) {
  tile::PlaceAttr at = place(value);
  Type element = tileType(value).getElementType();
  int64_t bytes = bytesOf(element);
  bool isVector = tileType(value).getRank() == 1;
  auto read = [&](Coord row, Coord col, int64_t count) {
    Value pointer =
        sharedAddress(at.getOffset(), at.getPitch(), element,
                      isVector ? Coord() : row, col, slots.lookup(value));
    return b.load(pointer, element, count,
                  std::min<int64_t>(16, count * bytes));
  };
  if (isVector || group.along == 1)
    return read(group.row, group.col, group.width);
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.push_back(read(group.row.plus(i), group.col, 1)[0]);
  return elements;
}

void GpuLowering::emitStore(std::function<void()> store) {
  if (holding)
    heldStores.push_back(std::move(store));
  else
    store();
}

void GpuLowering::releaseStores() {
  holding = false;
  for (const std::function<void()> &store : heldStores)
    store();
  heldStores.clear();
}

void GpuLowering::storeShared(Value value, const Group &group,
                              ValueRange elements) {
  tile::PlaceAttr at = place(value);
  Type element = tileType(value).getElementType();
  bool isVector = tileType(value).getRank() == 1;
  Value pointer = sharedAddress(at.getOffset(), at.getPitch(), element,
                                isVector ? Coord() : group.row, group.col,
                                slots.lookup(value));
  int64_t align = std::min<int64_t>(16, group.width * bytesOf(element));
  emitStore([this, kept = Values(elements), pointer, element, align] {
    b.store(kept, pointer, element, align);
  });
}

//===-- Global memory
//------------------------------------------------------===//

struct GpuLowering::Access {
  Value ref, base, stride; ///< pointer, i64, i64
  bool transposed, isVector;
  bool isDense; ///< elements of a line are consecutive
  Type element;
  tile::LoadOp picks; ///< whose rows are found through an order, or null
};

template <typename Op>
GpuLowering::Access GpuLowering::accessOf(Op op, RankedTensorType type) {
  tile::LoadOp picks;
  if constexpr (std::is_same_v<Op, tile::LoadOp>)
    if (op.getOrder())
      picks = op;
  return {scalars.lookup(op.getRef()),
          b.toI64(scalars.lookup(op.getBase())),
          b.toI64(scalars.lookup(op.getStride())),
          op.getTransposed(),
          type.getRank() == 1,
          type.getRank() == 2 || getConstantIntValue(op.getStride()) == 1,
          type.getElementType(),
          picks};
}

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

/// True if a valid size is known to cover the dimension.
static bool isWhole(Value limit, int64_t size) {
  std::optional<int64_t> constant = getConstantIntValue(limit);
  return constant && *constant >= size;
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
  auto choice = op.getRef().getDefiningOp<tile::ChooseOp>();
  if (!choice)
    return loadIf(
        access, op.getAlign(), group,
        validityOf(op.getRef(), op.getValid(), type.getShape(), group),
        invariant);
  Value first = scalars.lookup(choice.getCondition());
  Value second = arith::XOrIOp::create(
      b, first, arith::ConstantOp::create(b, b.getBoolAttr(true)));
  auto loadFrom = [&](Value ref, bool isFirst, Value when) {
    auto pick = [&](Value value) {
      auto select = value.getDefiningOp<arith::SelectOp>();
      if (!select || select.getCondition() != choice.getCondition())
        return value;
      return isFirst ? select.getTrueValue() : select.getFalseValue();
    };
    Access at = access;
    at.ref = scalars.lookup(ref);
    at.base = b.toI64(scalars.lookup(pick(op.getBase())));
    Value stride = pick(op.getStride());
    at.stride = b.toI64(scalars.lookup(stride));
    at.isDense |= getConstantIntValue(stride) == 1;
    Value valid = validityOf(ref, op.getValid(), type.getShape(), group);
    return loadIf(at, op.getAlign(), group,
                  arith::AndIOp::create(b, when, valid), invariant);
  };
  Values a = loadFrom(choice.getRef(), true, first);
  Values c = loadFrom(choice.getOtherwise(), false, second);
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
  return globalPointer(accessOf(op, tileType(op.getValue())), group, 0);
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

void GpuLowering::lowerStore(tile::StoreOp op) {
  RankedTensorType type = tileType(op.getValue());
  Access at = accessOf(op, type);
  Value source = roundedSource(op.getValue());
  int64_t bytes = bytesOf(at.element);
  access(rangesRead(source), {});
  forget();

  if (isOneRow()) { // everything is loaded before anything is stored
    ArrayRef<Group> groups = distributed(type.getShape()).groups;
    SmallVector<Values> elements;
    for (const Group &group : groups)
      elements.push_back(evaluate(source, group));
    for (auto [group, values] : llvm::zip(groups, elements))
      storeGroups(op, at, group, values, {});
    return;
  }
  if (hasRegisterLeaf(source) && at.isVector &&
      tile::loopsOverTiles(schedule)) {
    // Of the threads that have a row's number one stores it.
    int64_t parts = warpsOfRow(type.getDimSize(0));
    Value speaks = b.equal(b.rem(lane, 4), b.i32(0));
    if (parts > 1)
      speaks = arith::AndIOp::create(b, speaks,
                                     b.equal(b.rem(warp, parts), b.i32(0)));
    for (const Group &group : distributed(type.getShape()).groups)
      storeGroups(op, at, group, {evaluate(source, group)}, speaks);
    return;
  }
  if (hasRegisterLeaf(source) && at.isVector) {
    // Of the threads that share a column's total one stores it.
    const Layout &layout = *layouts.front().second;
    for (const Group &group : layout.columns)
      storeGroups(op, at, group, {evaluate(source, group)},
                  layout.firstRowLane);
    return;
  }
  if (bulkPlace(op))
    return storeInBulk(op);
  if (hasRegisterLeaf(source)) {
    // One branch for all groups of a row.
    llvm::MapVector<std::pair<void *, int64_t>, SmallVector<Group>> rows;
    for (const Group &group : distributed(type.getShape()).groups)
      rows[{group.row.base.getAsOpaquePointer(), group.row.offset}].push_back(
          group);
    bool sameColumns = isWhole(op.getValid()[1], type.getDimSize(1));
    for (auto &[key, groups] : rows)
      for (size_t i = 0; i < groups.size();
           i += sameColumns ? groups.size() : 1) {
        ArrayRef<Group> some =
            ArrayRef(groups).slice(i, sameColumns ? groups.size() : 1);
        SmallVector<Values> elements;
        for (const Group &group : some)
          elements.push_back(evaluate(source, group));
        storeGroups(op, at, some, elements, {});
      }
    return;
  }
  int64_t width = std::max<int64_t>(1, op.getAlign() / bytes);
  while (type.getShape().back() % width != 0)
    width /= 2;
  // Four columns of a few rows, and what they are multiplied with, leave room
  // for the loads of the next rows.
  if (schedule.getForm() == "rows")
    width = std::min<int64_t>(width, 4);
  auto storeOne = [&](const Group &group) {
    emitStore([=, elements = evaluate(source, group)] {
      storeGroups(op, at, group, {elements}, {});
    });
  };
  forWholeOrNot(source, op, [&] {
    if (!knownWhole || !forRuns(type.getShape(), width, storeOne))
      forGroups(linear(type.getShape(), width), storeOne);
  });
}

/// The loads that computing `value` makes.
void GpuLowering::loadLeaves(Value value,
                             SetVector<tile::LoadOp> &loads) const {
  if (!isa<RankedTensorType>(value.getType()) ||
      home(value) != tile::Home::Inline)
    return;
  if (auto load = value.getDefiningOp<tile::LoadOp>())
    loads.insert(load);
  else
    for (Value operand : value.getDefiningOp()->getOperands())
      loadLeaves(operand, loads);
}

void GpuLowering::forWholeOrNot(ValueRange tiles, tile::StoreOp store,
                                llvm::function_ref<void()> body) {
  SetVector<tile::LoadOp> loads;
  for (Value tile : tiles)
    loadLeaves(tile, loads);
  if (schedule.getForm() != "rows" || loads.empty() ||
      tileType(tiles.front()).getRank() != 2)
    return body();
  Value whole;
  auto require = [&](Value condition) {
    whole = whole ? arith::AndIOp::create(b, whole, condition).getResult()
                  : condition;
  };
  auto requireWhole = [&](Value ref, ValueRange valid, RankedTensorType type) {
    require(b.isPresent(scalars.lookup(ref)));
    for (auto [limit, size] : llvm::zip(valid, type.getShape()))
      if (!isWhole(limit, size))
        require(arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                      b.toI64(scalars.lookup(limit)),
                                      b.i64(size)));
  };
  for (tile::LoadOp load : loads.getArrayRef())
    requireWhole(load.getRef(), load.getValid(), load.getType());
  if (store)
    requireWhole(store.getRef(), store.getValid(), tileType(store.getValue()));
  auto branch = scf::IfOp::create(b, whole, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool isWhole : {true, false}) {
    b.setInsertionPointToStart(isWhole ? branch.thenBlock()
                                       : branch.elseBlock());
    knownWhole = isWhole;
    memo.clear();
    body();
    memo.clear();
  }
}

void GpuLowering::storeVector(tile::StoreOp op, const Group &group,
                              const Values &elements) {
  storeGroups(op, accessOf(op, tileType(op.getValue())), group, {elements}, {});
}

void GpuLowering::storeGroups(tile::StoreOp op, const Access &at,
                              ArrayRef<Group> groups, ArrayRef<Values> elements,
                              Value speaks) {
  Value condition =
      validityOf(op.getRef(), op.getValid(), tileType(op.getValue()).getShape(),
                 groups.front());
  if (condition && speaks)
    condition = arith::AndIOp::create(b, condition, speaks);
  OpBuilder::InsertionGuard guard(b);
  if (condition) {
    auto branch = scf::IfOp::create(b, condition, /*withElse=*/false);
    b.setInsertionPointToStart(branch.thenBlock());
  }
  for (auto [group, values] : llvm::zip(groups, elements))
    storePresent(op, at, group, values);
}

void GpuLowering::storePresent(tile::StoreOp op, const Access &at,
                               const Group &group, ValueRange elements) {
  int64_t bytes = bytesOf(at.element);
  if (isContiguous(at, group)) {
    int64_t align = std::min<int64_t>(op.getAlign(), group.width * bytes);
    b.store(elements, globalPointer(at, group, 0), at.element, align);
    return;
  }
  for (auto [i, element] : llvm::enumerate(elements))
    b.store(element, globalPointer(at, group, i), at.element, bytes);
}

void GpuLowering::storePresent(tile::StoreOp op, const Group &group,
                               ValueRange elements) {
  storePresent(op, accessOf(op, tileType(op.getValue())), group, elements);
}

void GpuLowering::argumentsOf(Value ref, SmallVectorImpl<Value> &arguments) {
  if (auto guard = ref.getDefiningOp<tile::GuardOp>())
    return argumentsOf(guard.getRef(), arguments);
  if (auto choice = ref.getDefiningOp<tile::ChooseOp>()) {
    argumentsOf(choice.getRef(), arguments);
    return argumentsOf(choice.getOtherwise(), arguments);
  }
  arguments.push_back(ref);
}

bool GpuLowering::isWritten(Value ref) const {
  SmallVector<Value> read, written;
  argumentsOf(ref, read);
  func::FuncOp(kernel).walk(
      [&](tile::StoreOp op) { argumentsOf(op.getRef(), written); });
  return llvm::any_of(read, [&](Value argument) {
    return llvm::is_contained(written, argument);
  });
}

/// True if the elements of `value` come from `load`.
static bool isMadeOf(Value value, tile::LoadOp load) {
  Operation *op = value.getDefiningOp();
  if (op == load)
    return true;
  return op && llvm::any_of(op->getOperands(), [&](Value operand) {
           return isa<RankedTensorType>(operand.getType()) &&
                  isMadeOf(operand, load);
         });
}

bool GpuLowering::areReadBefore(ArrayRef<tile::StoreOp> stores) const {
  SmallVector<Value> written;
  for (tile::StoreOp store : stores)
    argumentsOf(store.getRef(), written);
  bool isRead = false;
  func::FuncOp(kernel).walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op == stores.front())
      return WalkResult::interrupt();
    SmallVector<Value> read;
    auto load = dyn_cast<tile::LoadOp>(op);
    if (load && llvm::none_of(stores, [&](tile::StoreOp store) {
          return isMadeOf(store.getValue(), load);
        }))
      argumentsOf(load.getRef(), read);
    isRead |= llvm::any_of(read, [&](Value argument) {
      return llvm::is_contained(written, argument);
    });
    return WalkResult::advance();
  });
  return isRead;
}

//===-- Evaluation
//---------------------------------------------------------===//

/// A value that is about to be rounded to its own type when it is stored: the
/// rounding op's input.
Value GpuLowering::roundedSource(Value value) const {
  auto rounding = value.getDefiningOp<arith::TruncFOp>();
  return rounding ? rounding.getIn() : value;
}

/// Vectors are known by their column alone.
static auto memoKey(Value value, const Group &group) {
  bool isVector = tileType(value).getRank() == 1;
  return std::make_tuple(value.getAsOpaquePointer(),
                         isVector ? Coord() : group.row, group.col, group.width,
                         isVector ? int64_t(1) : group.along);
}

void GpuLowering::remember(Value value, const Group &group,
                           const Values &elements) {
  memo[memoKey(value, group)] = elements;
}

GpuLowering::Values GpuLowering::evaluate(Value value, const Group &group) {
  bool isVector = tileType(value).getRank() == 1;
  tile::Home where = home(value);
  if (where == tile::Home::Registers) {
    ArrayRef<Value> all = registers.find(value)->second;
    int64_t first = isVector ? group.columnSlot : group.slot;
    return Values(all.slice(first, group.width));
  }
  auto key = memoKey(value, group);
  auto found = memo.find(key);
  if (found != memo.end())
    return found->second;
  if (where == tile::Home::Panels)
    llvm_unreachable("panels are read as fragments, which are remembered");
  Values result = where == tile::Home::Shared
                      ? loadShared(value, group)
                      : evaluateOp(value.getDefiningOp(), group);
  memo[key] = result;
  return result;
}

GpuLowering::Values GpuLowering::evaluateBroadcast(tile::BroadcastOp op,
                                                   const Group &group) {
  bool alongRows = op.getAlong() == 0;
  Group vector;
  vector.col = alongRows ? group.row : group.col;
  vector.columnSlot = group.columnSlot;
  bool varies = group.along == static_cast<int64_t>(op.getAlong());
  vector.width = varies ? group.width : 1;
  Values elements = evaluate(op.getInput(), vector);
  return varies ? elements : Values(group.width, elements[0]);
}

GpuLowering::Values GpuLowering::iota(tile::IotaOp op, const Group &group) {
  bool isVector = op.getResult().getType().getRank() == 1;
  int64_t dim = isVector ? 1 : op.getDim();
  Coord first = dim == 0 ? group.row : group.col;
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.push_back(b.at(first.plus(dim == group.along ? i : 0)));
  return elements;
}

GpuLowering::Values GpuLowering::evaluateOp(Operation *op, const Group &group) {
  if (auto load = dyn_cast<tile::LoadOp>(op))
    return loadGlobal(load, group);
  if (auto broadcast = dyn_cast<tile::BroadcastOp>(op))
    return evaluateBroadcast(broadcast, group);
  if (auto numbers = dyn_cast<tile::IotaOp>(op))
    return iota(numbers, group);
  if (auto splat = dyn_cast<tile::SplatOp>(op)) {
    Value scalar = scalars.lookup(splat.getScalar());
    return Values(group.width,
                  scalar.getType().isIndex() ? b.toI32(scalar) : scalar);
  }
  if (auto window = dyn_cast<tile::WindowOp>(op)) {
    Group source = group;
    source.row = group.row.plus(window.getFirst());
    return evaluate(window.getInput(), source);
  }
  if (auto row = dyn_cast<tile::RowOp>(op)) {
    Group source = group;
    source.row = {Value(), static_cast<int64_t>(row.getIndex())};
    source.along = 1;
    return evaluate(row.getInput(), source);
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto splat = cast<SplatElementsAttr>(constant.getValue());
    return Values(group.width,
                  b.f32(splat.getSplatValue<APFloat>().convertToDouble()));
  }
  if (auto once = dyn_cast<tile::OnceOp>(op))
    return evaluate(once.getInput(), group);
  // Values of narrow types already travel as exact f32.
  if (auto widened = dyn_cast<arith::ExtFOp>(op))
    return evaluate(widened.getIn(), group);

  SmallVector<Values> operands;
  for (Value operand : op->getOperands())
    operands.push_back(evaluate(operand, group));
  Values results;
  for (int64_t i = 0; i < group.width; ++i) {
    Values scalarOperands;
    for (Values &operand : operands)
      scalarOperands.push_back(operand[i]);
    results.push_back(applyScalar(op, scalarOperands));
  }
  return results;
}

/// One element of an arith or math op; also used for the scalar ops themselves.
Value GpuLowering::applyScalar(Operation *op, ValueRange operands) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](math::Exp2Op) { return b.exp2(operands[0]); })
      .Case([&](math::Log2Op) { return b.log2(operands[0]); })
      .Case([&](math::RsqrtOp) { return b.rsqrt(operands[0]); })
      .Case([&](math::AbsFOp) {
        return LLVM::FAbsOp::create(b, operands[0]).getResult();
      })
      .Case([&](math::FmaOp) {
        return b.fma(operands[0], operands[1], operands[2]);
      })
      .Case([&](arith::MulFOp) { return b.mulF(operands[0], operands[1]); })
      .Case([&](arith::AddFOp) { return b.addF(operands[0], operands[1]); })
      .Case([&](arith::DivFOp) {
        return b.mulF(operands[0], b.reciprocal(operands[1]));
      })
      .Case([&](arith::TruncFOp truncation) -> Value {
        // A rounding that is not a store's own: there and back.
        Type element = getElementTypeOrSelf(truncation.getOut().getType());
        if (isa<FloatTF32Type>(element))
          return LLVM::BitcastOp::create(b, b.getF32Type(),
                                         b.toTF32(operands[0]));
        Value narrow = arith::TruncFOp::create(b, element, operands[0]);
        return arith::ExtFOp::create(b, b.getF32Type(), narrow);
      })
      .Default([&](Operation *other) -> Value {
        OperationState state(op->getLoc(), op->getName());
        state.addOperands(operands);
        Type type = getElementTypeOrSelf(other->getResult(0).getType());
        bool isTile = isa<RankedTensorType>(other->getResult(0).getType());
        state.addTypes(isTile && type.isIndex() ? b.getI32Type() : type);
        state.addAttributes(other->getAttrs());
        state.propertiesAttr = other->getPropertiesAsAttribute();
        return b.create(state)->getResult(0);
      });
}

} // namespace kdac
