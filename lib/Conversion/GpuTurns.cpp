// Loops over keys by wgmma (roles = "warpgroups"): a warpgroup has 64 rows, its
// scores and its sums in accumulators, its weights in registers.
//
// A turn has two halves: what makes weights of scores, and the product of the
// weights with the values. The first half of the next turn runs in one
// iteration with the second half of the present one: while one product of the
// two is under way the other's results become weights.
//
//   keys 0, queries | values 0, keys 1 | ...        copies
//   scores 0        | scores 1, sums 0 | ... sums n
//
// The loops that follow each other in the kernel, of which the later ones mask
// more, are one such sequence of turns.
#include "GpuTurns.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===-- What the program says
//-----------------------------------------------===//

LogicalResult TurnLowering::refuse(scf::ForOp loop) {
  return loop.emitOpError()
         << "has no turns that roles warpgroups can lower in stage "
            "tile-to-nvvm, which are products of bf16 tiles in panels that "
            "score, 64 rows for four warps, and one that adds weights times "
            "values to a carried tile times a number a row; roles fused takes "
            "any";
}

/// sums = weights values + carried * factor.
bool TurnLowering::matchSums(Turn &turn) {
  tile::DotOp sums = turn.sums;
  if (!canMultiply(sums) || sums.getTransB() || !sums.getAcc())
    return false;
  auto rescaled = sums.getAcc().getDefiningOp<arith::MulFOp>();
  if (!rescaled || rescaled.getLhs() != turn.carried)
    return false;
  auto factors = rescaled.getRhs().getDefiningOp<tile::BroadcastOp>();
  if (!factors || factors.getAlong() != 0)
    return false;
  turn.weights = sums.getA();
  turn.values = sums.getB().getDefiningOp<tile::LoadOp>();
  turn.factor = factors.getInput();
  return true;
}

/// True of the first loop, from 0 on, and of one that goes on where the loop
/// before it ends.
bool TurnLowering::continues(scf::ForOp loop) const {
  if (getConstantIntValue(loop.getStep()) != 1)
    return false;
  if (turns.empty())
    return getConstantIntValue(loop.getLowerBound()) == 0;
  scf::ForOp before = turns.back().loop;
  return loop.getLowerBound() == before.getUpperBound() &&
         loop.getInitArgs() == ValueRange(before.getResults());
}

LogicalResult TurnLowering::match(scf::ForOp loop) {
  Turn turn;
  turn.loop = loop;
  for (auto [yielded, argument] :
       llvm::zip(loop.getYieldedValues(), loop.getRegionIterArgs())) {
    auto type = dyn_cast<RankedTensorType>(yielded.getType());
    if (!type || (type.getRank() == 2 && turn.sums))
      return refuse(loop);
    if (type.getRank() == 1)
      continue;
    turn.sums = yielded.getDefiningOp<tile::DotOp>();
    turn.carried = argument;
    if (!turn.sums || !matchSums(turn))
      return refuse(loop);
  }
  for (auto dot : loop.getBody()->getOps<tile::DotOp>()) {
    if (dot == turn.sums)
      continue;
    Value before = turn.scores.empty() ? Value() : turn.scores.back();
    if (!canMultiply(dot) || !dot.getTransB() || !isInPanels(dot.getA()) ||
        loop->isAncestor(dot.getA().getDefiningOp()) || dot.getAcc() != before)
      return refuse(loop);
    turn.scores.push_back(dot);
    turn.keys.push_back(dot.getB().getDefiningOp<tile::LoadOp>());
  }
  if (!turn.sums || turn.scores.empty() || !continues(loop))
    return refuse(loop);
  turns.push_back(std::move(turn));
  return success();
}

//===-- Copies
//-------------------------------------------------------------===//

/// Of turn `number` and its loop, which differs from the others' in nothing
/// that copies depend on.
void TurnLowering::copyOf(ArrayRef<tile::LoadOp> loads, Value number) {
  IRMapping present = at.scalars;
  at.locateIteration(turns.back().loop, asIndex(number));
  for (tile::LoadOp load : loads) {
    Value buffer = bufferOf(load.getResult(), number);
    copy(load, copyLayout(load), buffer);
  }
  at.scalars = present;
}

//===-- Products
//-----------------------------------------------------------===//

/// Starts the products that score turn `number`.
TurnLowering::Values TurnLowering::startScores(Value number) {
  Turn &turn = turns.back();
  auto shape = tileType(turn.scores.back().getResult()).getShape();
  Values sums(at.distributed(shape).slots,
              LLVM::PoisonOp::create(b, b.getF32Type()));
  bool isFirst = true;
  for (tile::DotOp dot : turn.scores) {
    startProduct(sums, dot, number, isFirst);
    isFirst = false;
  }
  b.warpgroupCommit();
  return sums;
}

/// Starts what adds the weights times the values of turn `number`.
void TurnLowering::startSums(State &state, Value number) {
  Turn &turn = turns.back();
  Value values = turn.sums.getB();
  Value matrix = descriptor(values, number, {}, at.place(values).getPitch());
  for (size_t step = 0; step < state.weights.size() / 4; ++step)
    b.warpgroupProduct(state.sums,
                       ArrayRef<Value>(state.weights).slice(4 * step, 4),
                       b.add64(matrix, step * 16 * 128 / 16),
                       /*fresh=*/false, /*transposed=*/true);
  b.warpgroupCommit();
}

/// The carried sums times the factor that came with the weights.
void TurnLowering::rescale(State &state) {
  Turn &turn = turns.back();
  at.memo.clear();
  at.registers[turn.carried] = state.sums;
  at.registers[turn.factor] = state.factor;
  state.sums = elements(turn.sums.getAcc());
  at.memo.clear();
}

/// Scores of turn `number` become weights.
LogicalResult TurnLowering::weigh(Turn &turn, Value number,
                                  const Values &scores, State &state) {
  scf::ForOp loop = turn.loop;
  IRMapping present = at.scalars;
  at.scalars.map(loop.getInductionVar(), asIndex(number));
  ArrayRef<Value> rest = state.vectors;
  for (Value argument : loop.getRegionIterArgs())
    if (argument != turn.carried)
      at.registers[argument] = takeFront(rest, argument);
  at.registers[turn.scores.back().getResult()] = scores;
  for (Operation &op : loop.getBody()->without_terminator())
    if (!isa<tile::LoadOp, tile::DotOp>(op) && failed(at.lowerOp(&op)))
      return failure();
  Values source = elements(at.roundedSource(turn.weights));
  Type element = tileType(turn.weights).getElementType();
  state.weights.clear();
  for (size_t i = 0; i < source.size(); i += 2)
    state.weights.push_back(b.pack16(source[i], source[i + 1], element));
  state.factor = elements(turn.factor);
  state.vectors.clear();
  for (Value yielded : loop.getYieldedValues())
    if (yielded != turn.sums.getResult())
      state.vectors.append(elements(yielded));
  at.memo.clear();
  at.scalars = present;
  return success();
}

//===-- The sequence of turns
//-----------------------------------------------===//

TurnLowering::Values TurnLowering::takeFront(ArrayRef<Value> &from,
                                             Value tile) {
  size_t count = at.distributed(tileType(tile).getShape()).slots;
  Values taken(from.take_front(count));
  from = from.drop_front(count);
  return taken;
}

TurnLowering::Values TurnLowering::flat(const State &state) {
  Values all = state.vectors;
  for (const Values *part : {&state.sums, &state.weights, &state.factor})
    all.append(*part);
  return all;
}

TurnLowering::State TurnLowering::unflat(ArrayRef<Value> all,
                                         const State &like) {
  State state;
  for (auto [to, from] : {std::pair(&state.vectors, &like.vectors),
                          {&state.sums, &like.sums},
                          {&state.weights, &like.weights},
                          {&state.factor, &like.factor}}) {
    *to = Values(all.take_front(from->size()));
    all = all.drop_front(from->size());
  }
  return state;
}

/// Iteration `number`: scores of that turn beside sums of the one before.
LogicalResult TurnLowering::iterate(Turn &turn, Value number, State &state) {
  rescale(state);
  meet(0);
  copyOf(turns.back().keys, b.add(number, 1));
  copyOf(turns.back().values, number);
  NVVM::CpAsyncCommitGroupOp::create(b);
  b.warpgroupFence(state.sums, state.weights);
  Values scores = startScores(number);
  Values weights = state.weights; // products read them until the end
  startSums(state, b.add(number, -1));
  Values none;
  b.warpgroupWait(scores, none, /*left=*/1);
  if (failed(weigh(turn, number, scores, state)))
    return failure();
  b.warpgroupWait(state.sums, weights);
  return success();
}

/// The turns of one loop but the very first turn of all.
LogicalResult TurnLowering::runLoop(Turn &turn, Value first, Value end,
                                    State &state) {
  auto outside = std::tuple(at.thread, at.lane, at.warp, at.layoutAnchor);
  auto layouts = std::move(at.layouts);
  at.layouts.clear();
  auto made = scf::ForOp::create(b, first, end, b.i32(1), flat(state));
  made->setAttr("llvm.loop_annotation", b.rolled());
  {
    OpBuilder::InsertionGuard guard(b);
    if (made.getBody()->mightHaveTerminator())
      made.getBody()->getTerminator()->erase();
    b.setInsertionPointToStart(made.getBody());
    at.locateThread(b.opaqueThread(at.thread));
    IRMapping sizes = at.hideSizes();
    State inside = unflat(Values(made.getRegionIterArgs()), state);
    if (failed(iterate(turn, made.getInductionVar(), inside)))
      return failure();
    scf::YieldOp::create(b, flat(inside));
    for (auto [size, value] : sizes.getValueMap())
      at.scalars.map(size, value);
  }
  std::tie(at.thread, at.lane, at.warp, at.layoutAnchor) = outside;
  at.layouts = std::move(layouts);
  state = unflat(Values(made.getResults()), state);
  return success();
}

/// All turns of a program that has one.
LogicalResult TurnLowering::runTurns(State &state) {
  Turn &last = turns.back();
  Value zero = b.i32(0), one = b.i32(1);
  for (tile::DotOp dot : last.scores) {
    auto load = dot.getA().getDefiningOp<tile::LoadOp>();
    copy(load, copyLayout(load), {});
  }
  copyOf(last.keys, zero);
  NVVM::CpAsyncCommitGroupOp::create(b);
  copyOf(last.values, zero);
  copyOf(last.keys, one);
  NVVM::CpAsyncCommitGroupOp::create(b);
  meet(1);
  Values none;
  b.warpgroupFence(none, none);
  Values scores = startScores(zero);
  b.warpgroupWait(scores, none);
  if (failed(weigh(last, zero, scores, state)))
    return failure();
  Value first = one;
  for (Turn &turn : turns) {
    scf::ForOp loop = turn.loop;
    Value end = b.toI32(at.scalars.lookup(loop.getUpperBound()));
    if (failed(runLoop(turn, first, end, state)))
      return failure();
    first = arith::MaxSIOp::create(b, first, end);
  }
  rescale(state);
  meet(0);
  b.warpgroupFence(state.sums, state.weights);
  startSums(state, b.add(b.toI32(at.scalars.lookup(end())), -1));
  b.warpgroupWait(state.sums, state.weights);
  return success();
}

Value TurnLowering::end() {
  scf::ForOp loop = turns.back().loop;
  return loop.getUpperBound();
}

LogicalResult TurnLowering::run(scf::ForOp firstLoop) {
  for (Operation *op = firstLoop; op; op = op->getNextNode())
    if (auto loop = dyn_cast<scf::ForOp>(op))
      if (failed(match(loop)))
        return failure();
  State state;
  for (auto [argument, init] :
       llvm::zip(firstLoop.getRegionIterArgs(), firstLoop.getInitArgs()))
    (argument == turns.front().carried ? state.sums : state.vectors)
        .append(elements(init));
  at.memo.clear();
  Values before = state.vectors;
  before.append(state.sums);
  auto branch = scf::IfOp::create(
      b, TypeRange(ValueRange(before)),
      b.less(b.i32(0), b.toI32(at.scalars.lookup(end()))), /*withElse=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, before);
    b.setInsertionPointToStart(branch.thenBlock());
    if (failed(runTurns(state)))
      return failure();
    Values after = state.vectors;
    after.append(state.sums);
    scf::YieldOp::create(b, after);
  }
  Values results(branch.getResults());
  ArrayRef<Value> rest = results;
  scf::ForOp lastLoop = turns.back().loop;
  auto bind = [&](bool isSum) {
    for (auto [argument, result] :
         llvm::zip(lastLoop.getRegionIterArgs(), lastLoop.getResults()))
      if ((argument == turns.back().carried) == isSum)
        at.registers[result] = takeFront(rest, result);
  };
  bind(false);
  bind(true);
  return success();
}

} // namespace kdac
