// The chain role: warpgroups that carry the state, 64 columns of V each, in
// wgmma accumulators.
//
// Everything is transposed: a tile [n, V] is the 64 x n accumulator of a
// product whose rows are columns of V. So is every operand that depends on the
// state, and a 16-bit copy of an accumulator is already the register operand of
// the next product; the other operand is prepared in panels. The state never
// visits shared memory.
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

class Chain {
public:
  explicit Chain(RoleLowering &roles)
      : roles(roles), at(roles.at), b(roles.b) {}
  void run();

private:
  using Values = GpuEmitter::Values;

  void layOut(int64_t rows);
  Values initialState();
  Values loadState();
  Values readStagedState();
  void storeState(tile::StoreOp op);
  SmallVector<Group> runs() const;
  void exchangePairs(Values &runs);
  void swapInner(Values &state) const;
  void lowerChunk(Value number, Values &sums);
  SmallVector<tile::DotOp> inOrder();
  void lowerDot(tile::DotOp op, Value number);
  void readValues(Value number);
  void writeOutput(Value number);
  Values words(Value operand);
  Values elements(Value tile);
  bool isInFlight(Value value) const;
  void wait();
  void ahead(Value start);
  void begin(ArrayRef<tile::DotOp> dots);
  Value startOf(tile::DotOp op);
  void lowerAlone(tile::DotOp op, Value number);
  Value descriptor(tile::DotOp op, Value number);

  RoleLowering &roles;
  GpuLowering &at;
  GpuEmitter &b;
  /// Products that were issued and not waited for, with their sums.
  SmallVector<std::pair<tile::DotOp, Values>> inFlight;
  llvm::DenseMap<Value, Values> packed; ///< register operands of this chunk
  Values live;                          ///< those that products in flight read
  llvm::DenseMap<Operation *, Values> begun; ///< sums that products begin with
  bool isLast = false; ///< what is lowered is the last chunk's own code
  Value valueOffset;   ///< bytes from v's panels to this lane's ldmatrix row
};

/// The accumulators of a 64 x `rows` product: pairs of rows of the tile for one
/// column of V.
void Chain::layOut(int64_t rows) {
  auto layout = std::make_unique<Layout>();
  Value quad = b.div(at.lane, 4), pair = b.mul(b.rem(at.lane, 4), 2);
  Value column = b.add(b.mul(b.div(at.thread, 32), 16),
                       quad); // warps are 16 columns apart
  for (int64_t row = 0; row < rows; row += 8)
    for (int64_t half : {0, 8}) {
      Group group;
      group.row = {pair, row};
      group.col = {column, half};
      group.width = 2;
      group.along = 0;
      group.slot = layout->slots;
      layout->groups.push_back(group);
      layout->slots += 2;
    }
  SmallVector<int64_t> shape = {rows, at.schedule.getVTile()};
  at.layouts.push_back({shape, std::move(layout)});
}

/// What this thread moves of a state whose rows follow each other in memory: of
/// two accumulators 8 rows apart an even lane takes four rows of the first, its
/// own and the next lane's, an odd one four of the second. Half as many
/// accesses as pairs of rows, and each touches as many lines.
SmallVector<Group> Chain::runs() const {
  Value pair = b.mul(b.rem(at.lane, 4), 2);
  Value isOdd = b.equal(b.rem(at.lane, 2), b.i32(1));
  Value first = roles.select(isOdd, b.add(pair, 6), pair);
  auto type = cast<RankedTensorType>(roles.chunkLoop.getResult(0).getType());
  ArrayRef<Group> groups = at.distributed(type.getShape()).groups;
  SmallVector<Group> result;
  for (size_t i = 0; i < groups.size(); i += 4)
    for (size_t half : {0, 1}) {
      Group run = groups[i + half];
      run.row.base = first;
      run.width = 4;
      result.push_back(run);
    }
  return result;
}

/// From the rows of runs to this lane's own, or back.
void Chain::exchangePairs(Values &runs) {
  Value isOdd = b.equal(b.rem(at.lane, 2), b.i32(1));
  Value other = b.bitXor(at.lane, b.i32(1));
  for (size_t i = 0; i < runs.size(); i += 4)
    for (size_t j : {i, i + 1}) {
      Value &low = runs[j], &high = runs[j + 2];
      Value got = b.shuffle(roles.select(isOdd, low, high), other);
      low = roles.select(isOdd, got, low);
      high = roles.select(isOdd, high, got);
    }
}

/// From the order of runs, halves outside, to the accumulators', or back.
void Chain::swapInner(Values &state) const {
  for (size_t i = 0; i < state.size(); i += 8)
    for (size_t j : {i + 2, i + 3})
      std::swap(state[j], state[j + 2]);
}

/// From where the transfer warps have it copied to; its bytes are theirs again.
Chain::Values Chain::readStagedState() {
  tile::LoadOp load = roles.state;
  Values loaded;
  b.waitBarrier(roles.loadedState(), b.i32(0));
  for (const Group &group :
       at.distributed(load.getResult().getType().getShape()).groups) {
    if (load.getTransposed()) {
      loaded.append(b.load(roles.stateAt(group), b.getF32Type(), 2, 8));
      continue;
    }
    for (int64_t element : {0, 1})
      loaded.append(
          b.load(roles.stateAt(group, element), b.getF32Type(), 1, 4));
  }
  roles.releaseState();
  return loaded;
}

Chain::Values Chain::loadState() {
  if (roles.stagesState())
    return readStagedState();
  tile::LoadOp load = roles.state;
  const Layout &layout = at.distributed(load.getResult().getType().getShape());
  Values loaded;
  if (!load.getTransposed()) {
    for (const Group &group : layout.groups)
      loaded.append(at.loadPresent(load, group));
    return loaded;
  }
  for (const Group &run : runs())
    loaded.append(at.loadPresent(load, run));
  exchangePairs(loaded);
  swapInner(loaded);
  return loaded;
}

/// Whole, if the argument is there.
void Chain::storeState(tile::StoreOp op) {
  Values state = elements(at.roundedSource(op.getValue()));
  swapInner(state);
  exchangePairs(state);
  auto made = scf::IfOp::create(b, at.presence(op.getRef()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.thenBlock());
  for (auto [i, run] : llvm::enumerate(runs()))
    at.storePresent(op, run, ArrayRef<Value>(state).slice(4 * i, 4));
}

/// The sizes are whole, so only the argument's absence decides what is loaded;
/// what the loop starts from is computed from it.
Chain::Values Chain::initialState() {
  tile::LoadOp load = roles.state;
  auto type = load.getResult().getType();
  const Layout &layout = at.distributed(type.getShape());
  Value ref = at.scalars.lookup(load.getRef());
  Value present = b.isPresent(ref);
  SmallVector<Type> types(layout.slots, b.getF32Type());
  auto made = scf::IfOp::create(b, types, present, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.thenBlock());
  scf::YieldOp::create(b, loadState());
  b.setInsertionPointToStart(made.elseBlock());
  scf::YieldOp::create(b, Values(layout.slots, b.f32(0)));
  b.setInsertionPointAfter(made);
  Values start(made.getResults());
  Value initial = roles.chunkLoop.getInitArgs()[0];
  if (!initial.getDefiningOp<arith::SelectOp>())
    return start;
  at.registers[load.getResult()] = start;
  return elements(initial);
}

//===-- Operands
//-----------------------------------------------------------===//

/// True if `value` is computed from a product that has not been waited for.
bool Chain::isInFlight(Value value) const {
  if (!isa<RankedTensorType>(value.getType()))
    return false;
  if (llvm::any_of(inFlight, [&](const auto &entry) {
        return entry.first == value.getDefiningOp();
      }))
    return true;
  if (at.home(value) != tile::Home::Inline)
    return false;
  return llvm::any_of(value.getDefiningOp()->getOperands(),
                      [&](Value operand) { return isInFlight(operand); });
}

/// This thread's elements of a tile, in the order of its accumulator.
Chain::Values Chain::elements(Value tile) {
  if (isInFlight(tile))
    wait();
  const Layout &layout =
      at.distributed(cast<RankedTensorType>(tile.getType()).getShape());
  Values result;
  for (const Group &group : layout.groups)
    result.append(at.evaluate(tile, group));
  return result;
}

/// A rounded tile as register operands, four words for every 16 of its rows.
Chain::Values Chain::words(Value operand) {
  auto found = packed.find(operand);
  if (found != packed.end())
    return found->second;
  auto type = cast<RankedTensorType>(operand.getType());
  Values source = elements(at.roundedSource(operand)), result;
  for (size_t i = 0; i < source.size(); i += 2)
    result.push_back(b.pack16(source[i], source[i + 1], type.getElementType()));
  packed[operand] = result;
  return result;
}

/// v of this chunk as accumulators: the transposed fragments of its panels.
void Chain::readValues(Value number) {
  tile::LoadOp load = roles.values;
  auto type = load.getResult().getType();
  Value offset = b.add(roles.bufferOf(load.getResult(), number), valueOffset);
  const Layout &layout = at.distributed(type.getShape());
  for (int64_t row = 0; row < type.getDimSize(0); row += 16) {
    Values fragment = b.ldmatrix(
        roles.pointer(offset,
                      at.place(load.getResult()).getOffset() + row * 128),
        4, /*transposed=*/true);
    for (int64_t i = 0; i < 4; ++i) {
      const Group &group = layout.groups[row / 4 + i];
      Values pair = {b.unpack16(fragment[i], false, type.getElementType()),
                     b.unpack16(fragment[i], true, type.getElementType())};
      at.remember(load.getResult(), group, pair);
    }
  }
}

/// Where v was, whose place is free then, as is the image's.
void Chain::writeOutput(Value number) {
  if (roles.hasOutput()) {
    Value tile = roles.output.getValue();
    Value offset = b.add(roles.bufferOf(tile, number), valueOffset);
    Values rounded = words(tile);
    for (size_t i = 0; i < rounded.size(); i += 4)
      b.stmatrix(roles.pointer(offset), ArrayRef<Value>(rounded).slice(i, 4),
                 /*transposed=*/true,
                 at.place(tile).getOffset() + i / 4 * 2048);
  }
  b.warpSync();
  roles.branch(b.equal(at.lane, b.i32(0)),
               [&] { b.arrive(roles.madeOutput(number)); });
}

//===-- Products
//-----------------------------------------------------------===//

/// Products on the way to the next state first, then those of the output; one
/// that only begins the sum of another stands right before it. Without an erase
/// nothing on that way reads the state, whose operands must be there before its
/// sums: the output's come first.
SmallVector<tile::DotOp> Chain::inOrder() {
  Block *body = roles.chunkLoop.getBody();
  SmallVector<tile::DotOp> all;
  for (auto dot : body->getOps<tile::DotOp>())
    if (dot->getAttrOfType<StringAttr>(tile::kRoleAttr).getValue() ==
        tile::kChainRole)
      all.push_back(dot);
  llvm::DenseSet<Operation *> onPath;
  SmallVector<Value> pending(body->getTerminator()->getOperands());
  while (!pending.empty()) {
    Operation *source = pending.pop_back_val().getDefiningOp();
    if (source && source->getBlock() == body && onPath.insert(source).second)
      llvm::append_range(pending, source->getOperands());
  }
  SmallVector<tile::DotOp> first, rest;
  for (tile::DotOp dot : all)
    (onPath.contains(dot) ? first : rest).push_back(dot);
  if (!roles.hasOutput())
    return first;
  if (!roles.parts.inverse)
    std::swap(first, rest);
  llvm::append_range(first, rest);
  return first;
}

/// Of the prepared operand: [n][k] as stored, or [k][n] with trans_a.
Value Chain::descriptor(tile::DotOp op, Value number) {
  tile::PlaceAttr place = at.place(op.getA());
  Value address = b.address(
      roles.pointer(roles.bufferOf(op.getA(), number), place.getOffset()));
  // Panels follow each other along the contiguous dimension.
  return b.matrixDescriptor(address, op.getTransA() ? place.getPitch() : 16,
                            1024);
}

/// Evaluates what a product begins with, if any, as far as it does not wait
/// for a product: in the shadow of those in flight. The last chunk has no
/// registers for parts of it.
void Chain::ahead(Value start) {
  if (!start || start.getDefiningOp<tile::DotOp>())
    return;
  if (!isInFlight(start))
    return (void)elements(start);
  for (Value operand : start.getDefiningOp()->getOperands())
    if (!isLast && !isInFlight(operand))
      (void)elements(operand);
}

/// What a product adds to; only the last chunk has those of a choice.
Value Chain::startOf(tile::DotOp op) {
  Value start = op.getAcc();
  auto before = start ? start.getDefiningOp<tile::DotOp>() : tile::DotOp();
  return !isLast && before && roles.choiceOf(before) ? before.getAcc() : start;
}

/// A product of the last chunk, 16 rows at a time, each waited for: speed does
/// not count, but registers do.
void Chain::lowerAlone(tile::DotOp op, Value number) {
  Value source = roles.choiceOf(op).getTrueValue();
  Values sums = elements(op.getAcc());
  if (isInFlight(source))
    wait();
  Type element = getElementTypeOrSelf(op.getB().getType());
  const Layout &layout =
      at.distributed(cast<RankedTensorType>(source.getType()).getShape());
  Value matrix = descriptor(op, number);
  for (size_t step = 0; step < layout.groups.size() / 4; ++step) {
    Values operand;
    for (size_t i = 4 * step; i < 4 * step + 4; ++i) {
      Values pair = at.evaluate(source, layout.groups[i]);
      operand.push_back(b.pack16(pair[0], pair[1], element));
    }
    b.warpgroupFence(sums, operand);
    b.warpgroupProduct(sums, operand, b.add64(matrix, step * 2048 / 16),
                       /*fresh=*/false, /*transposed=*/true);
    b.warpgroupCommit();
    b.warpgroupWait(sums, operand);
  }
  at.registers[op.getResult()] = sums;
}

/// What `dots` read and begin with, all before the first of them is issued:
/// nothing but the products touches their sums until they are waited for.
void Chain::begin(ArrayRef<tile::DotOp> dots) {
  Values operands, all;
  for (tile::DotOp dot : dots)
    ahead(startOf(dot));
  for (tile::DotOp dot : dots)
    operands.append(words(dot.getB()));
  for (tile::DotOp dot : dots) {
    Value start = startOf(dot);
    bool continues = llvm::any_of(
        dots, [&](tile::DotOp other) { return other.getResult() == start; });
    if (start && !continues)
      begun[dot] = elements(start);
    all.append(begun[dot]);
  }
  llvm::SetVector<Value> read(operands.begin(), operands.end());
  b.warpgroupFence(all, read.getArrayRef());
  ArrayRef<Value> rest = all;
  for (tile::DotOp dot : dots) {
    Values &own = begun[dot];
    own.assign(rest.begin(), rest.begin() + own.size());
    rest = rest.drop_front(own.size());
  }
}

void Chain::lowerDot(tile::DotOp op, Value number) {
  int64_t rows = cast<RankedTensorType>(op.getResult().getType()).getDimSize(0);
  Value start = startOf(op);
  Values sums = begun.lookup(op);
  bool isBegun = !sums.empty();
  // Before the wait for the other operand, to be done in its shadow.
  if (start && !isBegun && !isInFlight(start))
    sums = elements(start);
  Values operand = words(op.getB());
  auto *before = llvm::find_if(inFlight, [&](auto &entry) {
    return start && entry.first.getResult() == start;
  });
  bool continues = before != inFlight.end();
  if (continues) {
    sums = before->second;
    inFlight.erase(before);
  } else if (start && !isBegun && sums.empty()) {
    sums = elements(start);
  }
  bool fresh = sums.empty();
  if (fresh) {
    Value undefined = LLVM::PoisonOp::create(b, b.getF32Type());
    sums.assign(rows / 2, undefined);
  }
  if (fresh || continues || isBegun) {
    Values none;
    b.warpgroupFence(none, operand);
  } else {
    b.warpgroupFence(sums, operand);
  }
  Value matrix = descriptor(op, number);
  int64_t pitch = at.place(op.getA()).getPitch();
  for (size_t step = 0; step < operand.size() / 4; ++step) {
    int64_t bytes =
        op.getTransA() ? step * 2048 : step / 4 * pitch + step % 4 * 32;
    Value at16 = b.add64(matrix, bytes / 16);
    b.warpgroupProduct(sums, ArrayRef<Value>(operand).slice(4 * step, 4), at16,
                       fresh && step == 0, op.getTransA());
  }
  b.warpgroupCommit();
  live.append(operand.begin(), operand.end());
  inFlight.push_back({op, sums});
}

void Chain::wait() {
  Values sums;
  for (auto &[dot, own] : inFlight)
    sums.append(own.begin(), own.end());
  llvm::SetVector<Value> operands(live.begin(), live.end());
  b.warpgroupWait(sums, operands.getArrayRef());
  ArrayRef<Value> rest = sums;
  for (auto &[dot, own] : inFlight) {
    at.registers[dot.getResult()] = Values(rest.take_front(own.size()));
    rest = rest.drop_front(own.size());
  }
  inFlight.clear();
  live.clear();
}

/// From the state before the chunk to the one after it, `sums`.
void Chain::lowerChunk(Value number, Values &sums) {
  at.registers[roles.chunkLoop.getRegionIterArg(0)] = sums;
  packed.clear();
  begun.clear();
  at.memo.clear();
  const PreparedChunk &parts = roles.parts;
  for (Value vector : {parts.total, parts.own, parts.strengths})
    if (vector && at.place(vector).getStages() > 1)
      at.slots[vector] = roles.bufferOf(vector, number);
  b.waitBarrier(roles.loadedValue(number),
                roles.parityOf(number, roles.valueStages()));
  b.waitBarrier(roles.preparedImage(number), roles.imageParity(number),
                /*cluster=*/roles.isAssisted());
  SmallVector<tile::DotOp> dots = inOrder(), chosen;
  llvm::copy_if(dots, std::back_inserter(chosen),
                [&](tile::DotOp dot) { return roles.choiceOf(dot); });
  llvm::erase_if(dots, [&](tile::DotOp dot) { return roles.choiceOf(dot); });
  if (!parts.inverse) {
    // No product is in flight while the state's registers are read.
    readValues(number);
    for (tile::DotOp dot : dots)
      (void)words(dot.getB());
    for (tile::DotOp dot : dots)
      if (Value start = dot.getAcc();
          start && !start.getDefiningOp<tile::DotOp>())
        (void)elements(start);
  }
  // With an erase the first two make W.
  size_t waitedFor = parts.inverse ? 2 : 0;
  for (auto [i, dot] : llvm::enumerate(dots)) {
    if (i == waitedFor && roles.isRefined()) {
      if (isLast)
        for (tile::DotOp choice : chosen)
          lowerAlone(choice, number);
      begin(ArrayRef(dots).drop_front(i));
    }
    lowerDot(dot, number);
    if (i == 0 && parts.inverse) {
      readValues(number);
      if (roles.isRefined())
        ahead(dots[1].getAcc());
    }
  }
  wait();
  writeOutput(number);
  sums =
      at.registers[roles.chunkLoop.getBody()->getTerminator()->getOperand(0)];
}

//===-- The role
//-----------------------------------------------------------===//

void Chain::run() {
  scf::ForOp loop = roles.chunkLoop;
  auto saved = std::move(at.layouts);
  at.layouts.clear();
  layOut(at.schedule.getChunk());
  layOut(roles.keyDim());
  Value in8 = b.rem(at.lane, 8);
  Value row = b.add(b.mul(b.div(at.lane, 16), 8), in8);
  Value unit = b.add(b.mul(roles.warpInGroup, 2), b.rem(b.div(at.lane, 8), 2));
  valueOffset = b.add(b.mul(row, 128), b.shiftLeft(b.bitXor(unit, in8), 4));
  valueOffset =
      b.add(valueOffset, b.mul(b.div(at.thread, 128),
                               at.place(roles.values.getResult()).getPitch()));
  Values carried = initialState();
  bool isLastApart = llvm::any_of(
      inOrder(), [&](tile::DotOp dot) { return roles.choiceOf(dot); });
  Value last = b.add(roles.chunks, -1);
  roles.loop(b.i32(0), isLastApart ? last : roles.chunks, 1, carried,
             [&](Value number, Values &sums) { lowerChunk(number, sums); });
  isLast = true;
  if (isLastApart)
    roles.choose(
        b.less(b.i32(0), roles.chunks), carried,
        [&](Values &sums) { lowerChunk(last, sums); }, [](Values &) {});
  at.registers[loop.getResult(0)] = carried;
  for (Operation *op = loop->getNextNode(); !isa<func::ReturnOp>(op);
       op = op->getNextNode()) {
    auto store = dyn_cast<tile::StoreOp>(op);
    if (store && store.getTransposed() &&
        cast<RankedTensorType>(store.getValue().getType()).getShape() ==
            cast<RankedTensorType>(loop.getResult(0).getType()).getShape())
      storeState(store);
    else
      (void)at.lowerOp(op);
  }
  at.layouts = std::move(saved);
}

void RoleLowering::chain() { Chain(*this).run(); }

} // namespace kdac
