// Stores to global memory: which thread stores what of a tile, under which
// condition, and what a kernel reads of what it writes.
#include "GpuAccess.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
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

/// A value that is about to be rounded to its own type when it is stored: the
/// rounding op's input.
Value GpuLowering::roundedSource(Value value) const {
  auto rounding = value.getDefiningOp<arith::TruncFOp>();
  return rounding ? rounding.getIn() : value;
}

/// Everything is loaded before anything is stored.
void GpuLowering::storeRow(tile::StoreOp op, const Access &at, Value source) {
  ArrayRef<Group> groups =
      distributed(tileType(op.getValue()).getShape()).groups;
  SmallVector<Values> elements;
  for (const Group &group : groups)
    elements.push_back(evaluate(source, group));
  for (auto [group, values] : llvm::zip(groups, elements))
    storeGroups(op, at, group, values, {});
}

/// A vector whose numbers several threads have: one of them stores each.
void GpuLowering::storeSpoken(tile::StoreOp op, const Access &at,
                              Value source) {
  ArrayRef<int64_t> shape = tileType(op.getValue()).getShape();
  if (tile::loopsOverTiles(schedule)) { // a row's
    int64_t parts = warpsOfRow(shape[0]);
    Value speaks = b.equal(b.rem(lane, 4), b.i32(0));
    if (parts > 1)
      speaks = arith::AndIOp::create(b, speaks,
                                     b.equal(b.rem(warp, parts), b.i32(0)));
    for (const Group &group : distributed(shape).groups)
      storeGroups(op, at, group, {evaluate(source, group)}, speaks);
    return;
  }
  const Layout &layout = *layouts.front().second; // a column's total
  for (const Group &group : layout.columns)
    storeGroups(op, at, group, {evaluate(source, group)}, layout.firstRowLane);
}

/// One branch for all groups of a row.
void GpuLowering::storeDistributed(tile::StoreOp op, const Access &at,
                                   Value source) {
  ArrayRef<int64_t> shape = tileType(op.getValue()).getShape();
  llvm::MapVector<std::pair<void *, int64_t>, SmallVector<Group>> rows;
  for (const Group &group : distributed(shape).groups)
    rows[{group.row.base.getAsOpaquePointer(), group.row.offset}].push_back(
        group);
  bool sameColumns = isWhole(op.getValid()[1], shape[1]);
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
}

/// What no thread has yet, by all threads in turn.
void GpuLowering::storeInTurns(tile::StoreOp op, const Access &at,
                               Value source) {
  ArrayRef<int64_t> shape = tileType(op.getValue()).getShape();
  int64_t width = 1;
  if (!at.isVector || at.isDense)
    width = std::max<int64_t>(1, op.getAlign() / bytesOf(at.element));
  while (shape.back() % width != 0)
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
    if (!knownWhole || !forRuns(shape, width, storeOne))
      forGroups(linear(shape, width), storeOne);
  });
}

void GpuLowering::lowerStore(tile::StoreOp op) {
  Access at = accessOf(op, tileType(op.getValue()));
  Value source = roundedSource(op.getValue());
  access(rangesRead(source), {});
  forget();
  if (isOneRow())
    return storeRow(op, at, source);
  bool isDistributed = hasRegisterLeaf(source);
  if (isDistributed && at.isVector)
    return storeSpoken(op, at, source);
  if (bulkPlace(op))
    return storeInBulk(op);
  if (isDistributed)
    return storeDistributed(op, at, source);
  storeInTurns(op, at, source);
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

void GpuLowering::whereValid(tile::StoreOp op, const Group &group, Value speaks,
                             llvm::function_ref<void()> body) {
  Value condition = validityOf(op.getRef(), op.getValid(),
                               tileType(op.getValue()).getShape(), group);
  if (condition && speaks)
    condition = arith::AndIOp::create(b, condition, speaks);
  OpBuilder::InsertionGuard guard(b);
  if (condition) {
    auto branch = scf::IfOp::create(b, condition, /*withElse=*/false);
    b.setInsertionPointToStart(branch.thenBlock());
  }
  body();
}

void GpuLowering::storeGroups(tile::StoreOp op, const Access &at,
                              ArrayRef<Group> groups, ArrayRef<Values> elements,
                              Value speaks) {
  whereValid(op, groups.front(), speaks, [&] {
    for (auto [group, values] : llvm::zip(groups, elements))
      storePresent(op, at, group, values);
  });
}

void GpuLowering::storeRun(ArrayRef<tile::StoreOp> run, const Group &group) {
  tile::StoreOp first = run.front();
  SmallVector<Values> entries;
  for (tile::StoreOp op : run)
    entries.push_back(evaluate(roundedSource(op.getValue()), group));
  if (run.size() == 1)
    return storeVector(first, group, entries.front());
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    for (const Values &entry : entries)
      elements.push_back(entry[i]);
  Access at = accessOf(first, tileType(first.getValue()));
  whereValid(first, group, {}, [&] {
    b.store(elements, globalPointer(at, group, 0), at.element,
            first.getAlign());
  });
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

} // namespace kdac
