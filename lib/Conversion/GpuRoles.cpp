// The frame of a kernel whose roles are warps: what belongs to each role, the
// barriers between them, and which warps run which.
#include "GpuRoles.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===-- What the program says
//-----------------------------------------------===//

LogicalResult RoleLowering::refuse() {
  return at.kernel.emitOpError()
         << "has no chunk loop that roles warps can lower in stage "
            "tile-to-nvvm; roles split and fused take any";
}

/// True if `op` prepares what the chain reads.
static bool isPassedOn(Operation *op) {
  auto has = [](Operation *op, StringRef role) {
    auto attr = op->getAttrOfType<StringAttr>(tile::kRoleAttr);
    return attr && attr.getValue() == role;
  };
  return has(op, tile::kPrepareRole) &&
         llvm::any_of(op->getUsers(), [&](Operation *user) {
           return has(user, tile::kChainRole);
         });
}

LogicalResult RoleLowering::match() {
  for (const char *name :
       {"tile.scratch", "tile.barriers", "tile.registers", "tile.image"})
    if (!at.kernel->hasAttr(name))
      return at.kernel.emitOpError()
             << "expected " << name << ", which tile-place writes";
  auto loops = at.kernel.getOps<scf::ForOp>();
  if (loops.empty() || (*loops.begin()).getInitArgs().size() != 1)
    return refuse();
  chunkLoop = *loops.begin();
  Value initial = chunkLoop.getInitArgs()[0];
  if (auto chosen = initial.getDefiningOp<arith::SelectOp>())
    initial = chosen.getFalseValue(); // a segment may start from the identity
  if (auto widened = initial.getDefiningOp<arith::ExtFOp>())
    initial = widened.getIn(); // elements of narrow types travel as f32
  state = initial.getDefiningOp<tile::LoadOp>();
  SmallVector<Value> images;
  for (Operation &op : chunkLoop.getBody()->without_terminator()) {
    if (auto load = dyn_cast<tile::LoadOp>(op)) {
      auto role = op.getAttrOfType<StringAttr>(tile::kRoleAttr);
      if (tileType(load.getResult()).getRank() == 1)
        parts.vectorLoads.push_back(load);
      else if (!role)
        return refuse();
      else if (role.getValue() == tile::kChainRole)
        values = load;
      else if (tileType(load.getResult()).getElementType().isF32())
        parts.wideLogits = load;
      else
        imageRows.push_back(load);
    } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
      output = store;
    } else if (auto place = dyn_cast<tile::CutOp>(op)) {
      cut = place;
    } else if (auto cumsum = dyn_cast<tile::CumsumOp>(op)) {
      parts.decay = cumsum;
    } else if (auto inverse = dyn_cast<tile::UnitTrilInverseOp>(op)) {
      parts.inverse = inverse;
    } else if (auto sum = dyn_cast<tile::ReduceOp>(op)) {
      auto product = sum.getInput().getDefiningOp<arith::MulFOp>();
      bool isSquare = !product || product.getLhs() == product.getRhs();
      if (isSquare)
        parts.norms.push_back(sum);
      else
        parts.ownSum = sum;
    }
    bool isRaw = isa<tile::LoadOp>(op) && !isPassedOn(&op);
    if (op.getNumResults() != 1 || isRaw)
      continue;
    tile::PlaceAttr place = at.place(op.getResult(0));
    if (place && place.getStages() > 1)
      images.push_back(op.getResult(0));
  }
  Value output = this->output ? this->output.getValue() : Value();
  llvm::erase(images, output);
  bool isWhole = tile::preparePairs(at.schedule) > 0 &&
                 tile::chainWarpgroups(at.schedule) > 0;
  if (!state || !values || !output || (!isWhole && !cut))
    return refuse();
  if (parts.inverse) {
    Value system =
        besideBroadcast(parts.inverse.getInput(), 0, parts.strengths);
    if (!system || !matchGram(system, /*strict=*/true))
      return refuse();
  }
  // Squares say what the other parts are made of.
  for (bool squares : {true, false})
    for (Value image : images) {
      auto shape = tileType(image).getShape();
      bool isSquare = shape.size() == 2 && shape[1] == chunkRows();
      if (isSquare == squares && failed(matchPart(image)))
        return failure();
    }
  bool hasDecays = parts.remaining && parts.total;
  bool erases = parts.keys && parts.system;
  if (static_cast<bool>(parts.own) != isRefined())
    return refuse();
  for (auto dot : chunkLoop.getOps<tile::DotOp>())
    if (arith::SelectOp choice = choiceOf(dot);
        choice && (!isRefined() || !isOfLastChunk(choice)))
      return refuse();
  bool isComplete = parts.queries && parts.attention &&
                    (hasDecays || (!parts.decay && parts.keys)) &&
                    (erases || !parts.inverse);
  return isComplete ? success() : refuse();
}

//===-- Spelling
//-----------------------------------------------------------===//

void RoleLowering::branch(Value condition, llvm::function_ref<void()> then,
                          llvm::function_ref<void()> otherwise) {
  auto made = scf::IfOp::create(b, condition, static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.thenBlock());
  at.memo.clear();
  then();
  at.memo.clear();
  if (!otherwise)
    return;
  b.setInsertionPointToStart(made.elseBlock());
  otherwise();
  at.memo.clear();
}

void RoleLowering::choose(Value condition, Values &carried,
                          llvm::function_ref<void(Values &)> then,
                          llvm::function_ref<void(Values &)> otherwise) {
  auto made = scf::IfOp::create(b, TypeRange(ValueRange(carried)), condition,
                                /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (auto [block, body] : {std::pair(made.thenBlock(), then),
                             std::pair(made.elseBlock(), otherwise)}) {
    b.setInsertionPointToStart(block);
    at.memo.clear();
    Values inside = carried;
    body(inside);
    scf::YieldOp::create(b, inside);
  }
  at.memo.clear();
  carried.assign(made.getResults().begin(), made.getResults().end());
}

void RoleLowering::loop(Value first, Value end, int64_t step, Values &carried,
                        llvm::function_ref<void(Value, Values &)> body) {
  auto made = scf::ForOp::create(b, first, end, b.i32(step), carried);
  made->setAttr("llvm.loop_annotation", b.rolled());
  {
    OpBuilder::InsertionGuard guard(b);
    if (made.getBody()->mightHaveTerminator() && !carried.empty())
      made.getBody()->getTerminator()->erase();
    b.setInsertionPointToStart(made.getBody());
    at.memo.clear();
    Values inside(made.getRegionIterArgs());
    body(made.getInductionVar(), inside);
    at.memo.clear();
    if (!carried.empty())
      scf::YieldOp::create(b, inside);
  }
  carried.assign(made.getResults().begin(), made.getResults().end());
}

void RoleLowering::locateInGroup() {
  threadInGroup = b.rem(at.thread, 128);
  warpInGroup = b.div(threadInGroup, 32);
}

void RoleLowering::anew(bool apart, llvm::function_ref<void()> body) {
  auto outside = std::tuple(at.thread, at.lane, at.warp, at.layoutAnchor,
                            threadInGroup, warpInGroup);
  auto before = std::tuple(roleScalars, chunks);
  at.scalars = roleScalars;
  at.locateThread(b.opaqueThread(at.thread));
  locateInGroup();
  readScalars(apart);
  body();
  std::tie(roleScalars, chunks) = before;
  at.scalars = roleScalars;
  std::tie(at.thread, at.lane, at.warp, at.layoutAnchor, threadInGroup,
           warpInGroup) = outside;
}

void RoleLowering::whileLess(Value first, int64_t step, Values &carried,
                             llvm::function_ref<void(Value &, Values &)> body) {
  Values start = {first, b.less(first, chunks)};
  start.append(carried);
  SmallVector<Type> types(ValueRange(start).getTypes());
  SmallVector<Location> locations(types.size(), b.getLoc());
  auto made = scf::WhileOp::create(b, types, start);
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&made.getBefore(), {}, types, locations);
  scf::ConditionOp::create(b, before->getArgument(1), before->getArguments());
  Block *after = b.createBlock(&made.getAfter(), {}, types, locations);
  Value number = after->getArgument(0);
  Values inside(after->getArguments().drop_front(2));
  body(number, inside);
  readScalars();
  Value next = b.add(number, step);
  Values last = {next, b.less(next, chunks)};
  last.append(inside);
  scf::YieldOp::create(b, last);
  carried.assign(made.getResults().begin() + 2, made.getResults().end());
}

void RoleLowering::chunkLoopOf(
    Value first, int64_t step, bool keepsCount, Values &carried,
    llvm::function_ref<void(Value &, Values &)> body) {
  auto turn = [&](Value &number, Values &inside) {
    anew(/*apart=*/false, [&] { body(number, inside); });
  };
  auto before = std::tuple(at.scalars, roleScalars, chunks);
  if (keepsCount)
    loop(first, chunks, step, carried,
         [&](Value number, Values &inside) { turn(number, inside); });
  else
    whileLess(first, step, carried, turn);
  std::tie(at.scalars, roleScalars, chunks) = before;
}

Value RoleLowering::select(Value condition, Value a, Value c) {
  return arith::SelectOp::create(b, condition, a, c);
}

Value RoleLowering::pointer(Value offset, int64_t constant) {
  return b.bytes(at.sharedBase, offset, constant);
}

int64_t RoleLowering::keyDim() {
  return tileType(chunkLoop.getResult(0)).getDimSize(0);
}

bool RoleLowering::hasOutput() {
  auto guard = output.getRef().getDefiningOp<tile::GuardOp>();
  return !guard || !matchPattern(guard.getCondition(), m_Zero());
}

int64_t RoleLowering::chainWarpgroups() const {
  return tile::chainWarpgroups(at.schedule);
}

Value RoleLowering::bufferOf(Value ringed, Value number) {
  tile::PlaceAttr place = at.place(ringed);
  bool isImage = ringed != values.getResult() && ringed != output.getValue();
  Value buffer =
      isImage ? imagePlace(number) : b.rem(number, place.getStages());
  return b.mul(buffer, place.getStride());
}

Value RoleLowering::parityOf(Value number, int64_t stages) {
  return b.bitAnd(b.div(number, stages), 1);
}

Value RoleLowering::imagePlace(Value number) {
  if (!isAssisted())
    return b.rem(number, imageStages());
  if (assistedPlace)
    return assistedPlace;
  int64_t own = imageStages() - 1;
  return select(isLent(number), b.i32(own), b.rem(ownNumber(number), own));
}

Value RoleLowering::imageParity(Value number) {
  if (!isAssisted() || assistedPlace)
    return parityOf(number, imageStages());
  Value lent = b.div(number, tile::kAssistedPeriod);
  return b.bitAnd(
      select(isLent(number), lent, b.div(ownNumber(number), imageStages() - 1)),
      1);
}

Value RoleLowering::rowParity(Value number) {
  return isAssisted() ? imageParity(number) : parityOf(number, rowStages());
}

Value RoleLowering::barrierAt(int64_t first, Value number, int64_t stages) {
  auto base = at.kernel->getAttrOfType<IntegerAttr>("tile.barriers");
  return b.address(
      pointer(b.mul(b.rem(number, stages), 8), base.getInt() + 8 * first));
}
Value RoleLowering::loadedImage(Value number) {
  return barrierAt(0, isAssisted() ? imagePlace(number) : number, rowStages());
}
Value RoleLowering::preparedImage(Value number) {
  return barrierAt(rowStages(), isAssisted() ? imagePlace(number) : number,
                   imageStages());
}
Value RoleLowering::loadedValue(Value number) {
  return barrierAt(rowStages() + imageStages(), number, valueStages());
}
Value RoleLowering::madeOutput(Value number) {
  return barrierAt(rowStages() + imageStages() + valueStages(), number,
                   valueStages());
}

void RoleLowering::enterChunk(Value number, ArrayRef<Operation *> users) {
  at.scalars = roleScalars;
  Value counter = chunkLoop.getInductionVar();
  at.scalars.map(counter,
                 arith::IndexCastOp::create(b, b.getIndexType(), number));
  Block *body = chunkLoop.getBody();
  llvm::DenseSet<Operation *> needed;
  llvm::SetVector<Value> outer;
  SmallVector<Operation *> pending(users);
  while (!pending.empty())
    for (Value operand : pending.pop_back_val()->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!operand.getType().isIndex() || operand == counter ||
          getConstantIntValue(operand))
        continue;
      if (!source || source->getBlock() != body)
        outer.insert(operand);
      else if (needed.insert(source).second)
        pending.push_back(source);
    }
  for (Value size : outer) {
    // Only sizes of the call are at hand in constant memory.
    if (!isa<BlockArgument>(size))
      continue;
    Value known = b.toI64(roleScalars.lookup(size));
    at.scalars.map(size, arith::IndexCastOp::create(b, b.getIndexType(),
                                                    b.opaqueSize(known)));
  }
  for (Operation &op : body->without_terminator())
    if (needed.contains(&op))
      b.clone(op, at.scalars);
}

//===-- Frame
//--------------------------------------------------------------===//

/// Calls `keep` for every scalar that roles read from shared memory.
void RoleLowering::forScalars(
    llvm::function_ref<void(Value, Value pointer, int64_t align)> keep) {
  Value bytes = copy       ? copyBytes(copy)
                : readCopy ? copyBytes(readCopy())
                           : Value();
  for (Operation &op : at.kernel.getBody().front())
    if (auto offset = op.getAttrOfType<IntegerAttr>("tile.scalar"))
      keep(op.getResult(0), pointer(bytes, offset.getInt()),
           offset.getInt() % 8 ? 4 : 8);
}

/// A thread a sequence: the one with `rank` others before it says so. The word
/// it writes is scratch that no role uses yet.
void RoleLowering::lowerLongest(tile::LongestOp op) {
  constexpr int64_t ranked = 128;
  Value ref = at.scalars.lookup(op.getOffsets());
  Type element = op.getOffsets().getType().getElementType();
  Value rank = b.toI32(at.scalars.lookup(op.getRank()));
  Value count = b.toI32(at.scalars.lookup(op.getCount()));
  auto scratch = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.scratch");
  auto length = [&](Value n) -> Value {
    Value first = b.pointer(ref, b.toI64(n), element);
    Value end = b.toI64(
        LLVM::LoadOp::create(b, element, b.pointer(first, b.i64(1), element)));
    return arith::SubIOp::create(
        b, end, b.toI64(LLVM::LoadOp::create(b, element, first)));
  };
  Value word; // of this copy, bytes
  if (copy)
    word = b.mul(threadGroup, 4);
  Value present = b.isPresent(ref);
  Value isRanked =
      arith::AndIOp::create(b, present, b.less(count, b.i32(ranked + 1)));
  auto made = scf::IfOp::create(b, TypeRange{b.getI32Type()}, isRanked, true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.thenBlock());
    branch(b.less(at.thread, count), [&] {
      Value own = length(at.thread);
      Values before = {b.i32(0)};
      loop(b.i32(0), count, 1, before, [&](Value other, Values &before) {
        Value theirs = length(other);
        Value isLonger =
            arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, theirs, own);
        Value isEqual = b.equal(theirs, own);
        Value isFirst = arith::OrIOp::create(
            b, isLonger,
            arith::AndIOp::create(b, isEqual, b.less(other, at.thread)));
        before[0] = b.add(before[0], select(isFirst, b.i32(1), b.i32(0)));
      });
      branch(b.equal(before[0], rank), [&] {
        LLVM::StoreOp::create(b, at.thread, pointer(word, scratch[0]), 4);
      });
    });
    b.barrier();
    Value found =
        LLVM::LoadOp::create(b, b.getI32Type(), pointer(word, scratch[0]), 4);
    scf::YieldOp::create(b, found);
    b.setInsertionPointToStart(made.elseBlock());
    scf::YieldOp::create(b, rank);
  }
  at.scalars.map(op.getResult(), arith::IndexCastOp::create(b, b.getIndexType(),
                                                            made.getResult(0)));
}

/// True if all that needs `value` in the chunk loop is made by prepare.
bool RoleLowering::isPreparersAlone(Value value) const {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (preparersOwn.contains(user))
      return true;
    auto role = user->getAttrOfType<StringAttr>(tile::kRoleAttr);
    if (!chunkLoop->isProperAncestor(user) || !role ||
        role.getValue() != tile::kPrepareRole)
      return false;
    // What is recomputed where it is used may be so by the chain.
    return llvm::all_of(user->getResults(), [&](Value made) {
      bool isKept = at.place(made) && at.place(made).getStages() > 1;
      return isKept || isPreparersAlone(made);
    });
  });
}

/// Biases, and numbers made of what memory has of a head: nothing waits for
/// them but prepare, and that for rows first.
void RoleLowering::findPreparersOwn() {
  if (!prepares() || isAssisted())
    return;
  for (Operation &op : llvm::reverse(at.kernel.getBody().front())) {
    if (op.getNumResults() != 1 || !op.isBeforeInBlock(chunkLoop) ||
        op.hasTrait<OpTrait::ConstantLike>())
      continue;
    Value made = op.getResult(0);
    auto vector = dyn_cast<RankedTensorType>(made.getType());
    bool isVector = vector && vector.getRank() == 1 && isa<tile::LoadOp>(op);
    if ((isVector || made.getType().isF32()) && isPreparersAlone(made))
      preparersOwn.insert(&op);
  }
  // What they are made of must be in shared memory: registers of the prologue
  // may be about another program.
  for (Operation &op : at.kernel.getBody().front()) {
    bool isKnown = llvm::all_of(op.getOperands(), [&](Value operand) {
      Operation *source = operand.getDefiningOp();
      return !source || source->hasTrait<OpTrait::ConstantLike>() ||
             source->hasAttr("tile.scalar") || preparersOwn.contains(source);
    });
    if (!isKnown)
      preparersOwn.erase(&op);
  }
}

/// By the warps that prepare, when they begin.
void RoleLowering::lowerPreparersOwn() {
  if (preparersOwn.empty())
    return;
  int64_t before = 128 * chainWarpgroups();
  Value everyone = at.thread;
  at.thread = b.add(at.thread, -before);
  for (Operation &op : at.kernel.getBody().front())
    if (preparersOwn.contains(&op))
      (void)at.lowerOp(&op);
  branch(b.equal(at.thread, b.i32(0)), [&] {
    forScalars([&](Value scalar, Value pointer, int64_t align) {
      if (preparersOwn.contains(scalar.getDefiningOp()))
        LLVM::StoreOp::create(b, at.scalars.lookup(scalar), pointer, align);
    });
  });
  at.thread = everyone;
  int64_t pairs = tile::preparePairs(at.schedule);
  b.namedBarrier(b.i32(pairs + 2), 64 * pairs);
  readScalars();
}

/// What all threads do before they part: scalars and vectors of the whole
/// kernel.
LogicalResult RoleLowering::lowerPrologue() {
  Value everyone = at.thread;
  if (keepsCopies())
    shareOutThreads();
  for (Operation &op : at.kernel.getBody().front()) {
    if (&op == chunkLoop.getOperation())
      break;
    auto program = dyn_cast<tile::ProgramIdOp>(op);
    if (preparersOwn.contains(&op))
      continue;
    if (auto longest = dyn_cast<tile::LongestOp>(op))
      lowerLongest(longest);
    else if (program && copy)
      at.scalars.map(program.getResult(), programOfCopy());
    else if (&op != state.getOperation() && !isa<arith::ExtFOp>(op) &&
             failed(lowerCopied(&op)))
      return failure();
  }
  Value writes = b.equal(at.thread, b.i32(0));
  if (copy)
    writes = arith::AndIOp::create(b, writes, makesCopy);
  branch(writes, [&] {
    forScalars([&](Value scalar, Value pointer, int64_t align) {
      if (preparersOwn.contains(scalar.getDefiningOp()))
        return;
      Value value = at.scalars.lookup(scalar);
      if (value.getType().isIndex())
        value = b.toI64(value);
      LLVM::StoreOp::create(b, value, pointer, align);
    });
  });
  at.thread = everyone;
  copy = {};
  return success();
}

/// Reads the scalars again. What is not used needs no load; what is used soon
/// needs no register for its neighbour if they are loaded `apart`.
void RoleLowering::readScalars(bool apart) {
  b.memoryFence();
  forScalars([&](Value scalar, Value pointer, int64_t align) {
    Value known = at.scalars.lookupOrNull(scalar); // a pointer, perhaps
    Type type = known ? known.getType() : scalar.getType();
    if (apart)
      b.memoryFence();
    Value value = LLVM::LoadOp::create(
        b, type.isIndex() ? b.getI64Type() : type, pointer, align);
    if (type.isIndex())
      value = arith::IndexCastOp::create(b, b.getIndexType(), value);
    at.scalars.map(scalar, value);
  });
  roleScalars = at.scalars;
  chunks = b.toI32(at.scalars.lookup(chunkLoop.getUpperBound()));
}

/// The system and the attention are lower triangular, and only their lower
/// blocks are ever written. By the block's first warpgroup.
void RoleLowering::zeroAboveDiagonal(int64_t firstStage) {
  tile::PlaceAttr place = at.place(parts.attention);
  int64_t first = place.getOffset() & ~int64_t(1023);
  // Of one image, 16 bytes each; without a system its half of all rows as well.
  int64_t rows = parts.inverse ? tile::kRoleBlock : chunkRows();
  int64_t words = rows * 128 / 16;
  auto type = VectorType::get({4}, b.getI32Type());
  Value zero = LLVM::ZeroOp::create(b, type);
  constexpr int64_t warpgroup = 128;
  branch(b.less(at.thread, b.i32(warpgroup)), [&] {
    for (int64_t stage = firstStage; stage < place.getStages(); ++stage)
      for (int64_t word = 0; word < words; word += warpgroup)
        LLVM::StoreOp::create(
            b, zero,
            pointer(b.mul(at.thread, 16),
                    first + stage * place.getStride() + 16 * word),
            16);
  });
}

void RoleLowering::initialise() {
  int64_t warpgroup = 128, chainWarps = 4 * chainWarpgroups();
  auto loaded = [&](int64_t i) { return barrierAt(0, b.i32(i), rowStages()); };
  auto prepared = [&](int64_t i) {
    return barrierAt(rowStages(), b.i32(i), imageStages());
  };
  // By a warp that has less to do before the roles begin than the first.
  int64_t last = 32 * at.schedule.getWarps() - 32;
  branch(b.equal(at.thread, b.i32(last)), [&] {
    for (int64_t i = imageStages(); i < rowStages(); ++i)
      b.initBarrier(loaded(i), b.i32(warpgroup));
    for (int64_t i = 0; i < imageStages(); ++i) {
      b.initBarrier(loaded(i), b.i32(warpgroup));
      Value preparers = b.i32(prepares() ? 2 : 1);
      if (shares())
        preparers = select(isOwn(b.i32(i)), preparers, b.i32(1));
      b.initBarrier(prepared(i), preparers);
      if (shares())
        b.initBarrier(awaitedImage(b.i32(i)), b.i32(clusterBlocks() - 1));
      if (isAssisted()) {
        b.initBarrier(awaitedImage(b.i32(i)), b.i32(1));
        b.initBarrier(takenImage(b.i32(i)), b.i32(2));
      }
    }
    for (int64_t i = 0; i < valueStages(); ++i) {
      b.initBarrier(loadedValue(b.i32(i)), b.i32(warpgroup));
      b.initBarrier(madeOutput(b.i32(i)),
                    b.i32(std::max<int64_t>(1, chainWarps)));
    }
    if (stagesState()) {
      b.initBarrier(loadedState(), b.i32(warpgroup));
      b.initBarrier(leftState(), b.i32(chainWarps));
    }
    b.publishBarriers();
  });
  if (prepares())
    zeroAboveDiagonal(0);
  b.proxyFence();
}

/// Where ptxas else keeps a neighbour through the role, and spills it: beside
/// assistants in a chain without an erase, otherwise in transfer.
bool RoleLowering::loadsApart(unsigned role) const {
  return isAssisted() ? role == 0 && !parts.inverse : role == 2;
}

void RoleLowering::dispatch() {
  int64_t chains = chainWarpgroups();
  Value group = b.div(at.thread, 128);
  locateInGroup();
  IRMapping before = at.scalars;
  auto role = [&](unsigned number, llvm::function_ref<void()> body) {
    auto budget = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.registers");
    b.setRegisters(budget[number], budget[3]);
    at.scalars = before;
    readScalars(loadsApart(number));
    body();
  };
  int64_t preparers = tile::preparePairs(at.schedule) / 2;
  auto others = [&] { role(2, [&] { transfer(); }); };
  auto preparing = [&] {
    if (preparers == 0)
      return others();
    branch(
        b.less(group, b.i32(chains + preparers)),
        [&] {
          role(1, [&] {
            lowerPreparersOwn();
            prepare();
          });
        },
        others);
  };
  if (chains == 0)
    return preparing();
  auto all = [&] {
    branch(
        b.less(group, b.i32(chains)), [&] { role(0, [&] { chain(); }); },
        preparing);
  };
  if (!isAssisted())
    return all();
  branch(
      isAssistant(),
      [&] {
        assist();
        at.scalars = before;
      },
      all);
}

LogicalResult RoleLowering::run() {
  if (failed(match()))
    return failure();
  at.createKernel();
  b.mergeFactors();
  findPreparersOwn();
  initialise();
  if (failed(lowerPrologue()))
    return failure();
  clusterBlocks() > 1 ? b.clusterBarrier() : at.synchronise();
  dispatch();
  // A block stays while others may reach into its memory.
  if (clusterBlocks() > 1)
    b.clusterBarrier();
  LLVM::ReturnOp::create(b, ValueRange());
  return success();
}

} // namespace kdac
