// How roles go through chunks: branches and loops, the buffers of the rings
// with their barriers, and the scalars of a chunk.
#include "GpuRoles.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

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
  while (!pending.empty()) {
    Operation *user = pending.pop_back_val();
    bool chooses =
        isa<arith::SelectOp>(user) && user->getResult(0).getType().isIndex();
    for (Value operand : user->getOperands()) {
      Operation *source = operand.getDefiningOp();
      bool isNumber = operand.getType().isIndex() ||
                      (chooses && operand.getType().isInteger(1));
      if (!isNumber || operand == counter || getConstantIntValue(operand))
        continue;
      if (!source || source->getBlock() != body)
        outer.insert(operand);
      else if (needed.insert(source).second)
        pending.push_back(source);
    }
  }
  for (Value size : outer) {
    // Only sizes of the call are at hand in constant memory.
    if (!isa<BlockArgument>(size))
      continue;
    Value known = b.toI64(roleScalars.lookup(size));
    at.scalars.map(size, arith::IndexCastOp::create(b, b.getIndexType(),
                                                    b.opaqueSize(known)));
  }
  for (Operation &op : body->without_terminator()) {
    if (!needed.contains(&op))
      continue;
    if (isa<arith::DivUIOp, arith::RemUIOp>(op) &&
        !getConstantIntValue(op.getOperand(1)))
      at.lowerDivision(&op); // numbers of heads
    else
      b.clone(op, at.scalars);
  }
}

} // namespace kdac
