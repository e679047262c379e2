// Sums of products by wgmma: a warpgroup has 64 rows of the result in
// accumulators, all threads copy.
//
// A turn's products run while the next turn's start, so that the tensor cores
// always have some: a turn waits for the products of the one before it, and at
// its beginning, where the warps meet, everyone has waited for those of the one
// before that. Their buffers are filled next: copies are two turns less ahead
// than there are buffers.
//
// Where a loop is around this one, its iterations, the parts of a result, are
// one sequence: a part's first copies are under way before the part before it
// is stored.
#include "GpuMatmul.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

LogicalResult MatmulLowering::match(scf::ForOp of) {
  loop = of;
  auto refuse = [&] {
    return loop.emitOpError()
           << "has no turns that roles warpgroups can lower in stage "
              "tile-to-nvvm, which add products of bf16 tiles in panels of 3 "
              "buffers and more, 64 rows for four warps, to carried tiles; "
              "roles fused takes any";
  };
  if (getConstantIntValue(loop.getStep()) != 1 ||
      getConstantIntValue(loop.getLowerBound()) != 0)
    return refuse();
  for (auto [yielded, argument] :
       llvm::zip(loop.getYieldedValues(), loop.getRegionIterArgs())) {
    auto dot = yielded.getDefiningOp<tile::DotOp>();
    if (!dot || dot.getAcc() != argument || !dot.getTransB() ||
        !canMultiply(dot) || !isInPanels(dot.getA()))
      return refuse();
    dots.push_back(dot);
    for (Value operand : {dot.getA(), dot.getB()})
      loads[operand.getDefiningOp()] = {};
  }
  for (auto &[load, layout] : loads) {
    int64_t stages = at.place(load->getResult(0)).getStages();
    if (load->getParentOp() != loop || stages < 3)
      return refuse();
    ahead = stages - 2;
  }
  return dots.empty() ? refuse() : success();
}

/// Which rows a tile has does not change from turn to turn.
void MatmulLowering::pickRows() {
  IRMapping present = at.scalars;
  at.locateIteration(loop, asIndex(b.i32(0)));
  for (auto &[op, layout] : loads) {
    auto load = cast<tile::LoadOp>(op);
    if (layout.groups.empty())
      layout = copyLayout(load);
    if (load.getOrder())
      for (const Group &group : layout.groups)
        at.keepPickedRow(load, group.row);
  }
  at.scalars = present;
}

void MatmulLowering::copyOf(Value number) {
  IRMapping present = at.scalars;
  at.locateIteration(loop, asIndex(number));
  for (auto &[op, layout] : loads)
    copy(cast<tile::LoadOp>(op), layout, bufferOf(op->getResult(0), number),
         /*fetchesNext=*/true);
  NVVM::CpAsyncCommitGroupOp::create(b);
  at.scalars = present;
}

void MatmulLowering::startProducts(Value number) {
  MutableArrayRef<Value> rest = sums;
  for (tile::DotOp dot : dots) {
    auto shape = tileType(dot.getResult()).getShape();
    size_t count = at.distributed(shape).slots;
    startProduct(rest.take_front(count), dot, number, /*fresh=*/false);
    rest = rest.drop_front(count);
  }
  b.warpgroupCommit();
}

void MatmulLowering::iterate(Value number) {
  meet(ahead - 1);
  b.warpgroupFence(sums, {});
  startProducts(number);
  copyOf(b.add(number, ahead));
  b.warpgroupWait(sums, {}, /*left=*/1);
}

/// The first turns' copies.
void MatmulLowering::startCopies() {
  for (int64_t i = 0; i < ahead; ++i)
    copyOf(b.i32(i));
}

/// All turns, of which the first ones' copies are under way.
void MatmulLowering::runTurns() {
  for (Value init : loop.getInitArgs())
    sums.append(elements(init));
  at.memo.clear();
  Value end = b.toI32(at.scalars.lookup(loop.getUpperBound()));
  auto made = scf::ForOp::create(b, b.i32(0), end, b.i32(1), sums);
  made->setAttr("llvm.loop_annotation", b.rolled());
  {
    OpBuilder::InsertionGuard guard(b);
    if (made.getBody()->mightHaveTerminator())
      made.getBody()->getTerminator()->erase();
    b.setInsertionPointToStart(made.getBody());
    sums = Values(made.getRegionIterArgs());
    iterate(made.getInductionVar());
    scf::YieldOp::create(b, sums);
  }
  sums = Values(made.getResults());
  b.warpgroupWait(sums, {});
  ArrayRef<Value> rest = sums;
  for (Value result : loop.getResults()) {
    size_t count = at.distributed(tileType(result).getShape()).slots;
    at.registers[result] = Values(rest.take_front(count));
    rest = rest.drop_front(count);
  }
  sums.clear();
}

//===-- Results
//------------------------------------------------------------===//

/// Of four lanes that have a word each of four pieces of 16 bytes each lane
/// gets a whole piece: lane q word k of lane k's words q.
void MatmulLowering::exchange(MutableArrayRef<Value> words) {
  for (int64_t distance : {1, 2}) {
    Value isUpper = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne, b.bitAnd(at.lane, distance), b.i32(0));
    for (int64_t k = 0; k < 4; ++k) {
      if (k & distance)
        continue;
      Value &low = words[k], &high = words[k + distance];
      Value sent = arith::SelectOp::create(b, isUpper, low, high);
      Value got = b.shuffleXor(sent, distance);
      low = arith::SelectOp::create(b, isUpper, got, low);
      high = arith::SelectOp::create(b, isUpper, high, got);
    }
  }
}

/// Pieces of 16 bytes of a tile of 16-bit elements whose columns all exist and
/// whose rows begin at multiples of them.
void MatmulLowering::storePieces(tile::StoreOp op) {
  Value source = at.roundedSource(op.getValue());
  auto type = tileType(op.getValue());
  Type element = type.getElementType();
  ArrayRef<Group> groups = at.distributed(type.getShape()).groups;
  Value rows = b.toI32(at.scalars.lookup(op.getValid()[0]));
  for (size_t half : {0, 1}) { // rows 8 apart
    Values words;
    for (size_t i = half; i < groups.size(); i += 2) {
      Values pair = at.evaluate(source, groups[i]);
      words.push_back(b.pack16(pair[0], pair[1], element));
    }
    for (size_t i = 0; i < words.size(); i += 4)
      exchange(MutableArrayRef(words).slice(i, 4));
    Group first = groups[half];
    auto branch = scf::IfOp::create(b, b.less(b.at(first.row), rows),
                                    /*withElse=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    first.col = {b.mul(b.rem(at.lane, 4), 8), 0};
    Value pointer = at.globalPointer(op, first);
    auto piece = VectorType::get({4}, b.getI32Type());
    for (size_t i = 0; i < words.size(); i += 4) {
      Value vector = LLVM::PoisonOp::create(b, piece);
      for (int64_t k = 0; k < 4; ++k)
        vector =
            LLVM::InsertElementOp::create(b, vector, words[i + k], b.i32(k));
      LLVM::StoreOp::create(b, vector, b.bytes(pointer, {}, i * 16),
                            /*alignment=*/16);
    }
  }
}

/// Most results are there and whole: no condition for every pair of columns.
void MatmulLowering::store(tile::StoreOp op) {
  auto type = tileType(op.getValue());
  Value ref = at.scalars.lookup(op.getRef());
  auto present = scf::IfOp::create(b, b.isPresent(ref), /*withElse=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(present.thenBlock());
  at.memo.clear();
  if (bytesOf(type.getElementType()) != 2 || type.getDimSize(1) % 32 != 0) {
    at.lowerStore(op);
    at.memo.clear();
    return;
  }
  auto number = [&](Value index) { return b.toI64(at.scalars.lookup(index)); };
  Value isWhole = arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                        number(op.getValid()[1]),
                                        b.i64(type.getDimSize(1)));
  Value address = LLVM::PtrToIntOp::create(
      b, b.getI64Type(),
      b.pointer(ref, number(op.getBase()), type.getElementType()));
  Value stride = b.mul64(number(op.getStride()), b.i64(2));
  Value rest = arith::AndIOp::create(
      b, arith::OrIOp::create(b, address, stride), b.i64(15));
  Value isAligned =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rest, b.i64(0));
  auto branch = scf::IfOp::create(
      b, arith::AndIOp::create(b, isWhole, isAligned), /*withElse=*/true);
  b.setInsertionPointToStart(branch.thenBlock());
  storePieces(op);
  at.memo.clear();
  b.setInsertionPointToStart(branch.elseBlock());
  at.lowerStore(op);
  at.memo.clear();
}

//===-- Parts one after the other
//-------------------------------------------===//

/// What comes before the turns, of part `number`; what it reads from memory is
/// either read, or was before and is in `known`.
LogicalResult MatmulLowering::locate(scf::ForOp parts, Value number,
                                     ValueRange known) {
  at.scalars.map(parts.getInductionVar(), number);
  for (Operation &op : *parts.getBody()) {
    if (&op == loop)
      break;
    if (isa<tile::LoadScalarOp>(op) && !known.empty()) {
      at.scalars.map(op.getResult(0), known.front());
      known = known.drop_front();
    } else if (failed(at.lowerOp(&op))) {
      return failure();
    }
  }
  return success();
}

/// What was read of the part that was located last: numbers, then rows, which
/// 32 bits hold.
MatmulLowering::Values MatmulLowering::known(scf::ForOp parts) {
  Values values;
  for (auto load : parts.getBody()->getOps<tile::LoadScalarOp>())
    values.push_back(at.scalars.lookup(load.getResult()));
  at.pickedRows.clear();
  pickRows();
  for (auto &[key, row] : at.pickedRows)
    values.push_back(b.toI32(row));
  return values;
}

void MatmulLowering::useRows(ValueRange known) {
  known = known.take_back(at.pickedRows.size());
  for (auto &[key, row] : at.pickedRows) {
    row = b.toI64(known.front());
    known = known.drop_front();
  }
}

LogicalResult MatmulLowering::runParts(scf::ForOp parts) {
  Value first = at.scalars.lookup(parts.getLowerBound());
  Value step = at.scalars.lookup(parts.getStep());
  if (failed(locate(parts, first)))
    return failure();
  Values read = known(parts);
  startCopies();
  auto made = scf::ForOp::create(
      b, first, at.scalars.lookup(parts.getUpperBound()), step, read);
  made->setAttr("llvm.loop_annotation", b.rolled());
  OpBuilder::InsertionGuard guard(b);
  if (made.getBody()->mightHaveTerminator())
    made.getBody()->getTerminator()->erase();
  b.setInsertionPointToStart(made.getBody());
  Value number = made.getInductionVar();
  if (failed(locate(parts, number, made.getRegionIterArgs())))
    return failure();
  useRows(made.getRegionIterArgs());
  runTurns();
  // Copies of turns beyond the last one are done, and so is everybody.
  meet(0);
  IRMapping present = at.scalars;
  if (failed(locate(parts, arith::AddIOp::create(b, number, step))))
    return failure();
  Values next = known(parts);
  startCopies();
  at.scalars = present;
  for (Operation *op = loop->getNextNode(); op && !isa<scf::YieldOp>(op);
       op = op->getNextNode()) {
    if (auto result = dyn_cast<tile::StoreOp>(op))
      store(result);
    else if (failed(at.lowerOp(op)))
      return failure();
  }
  scf::YieldOp::create(b, next);
  return success();
}

LogicalResult MatmulLowering::run(scf::ForOp of) {
  auto inner = of.getBody()->getOps<scf::ForOp>();
  if (!inner.empty()) {
    if (failed(match(*inner.begin())))
      return failure();
    return runParts(of);
  }
  if (failed(match(of)))
    return failure();
  pickRows();
  startCopies();
  runTurns();
  return success();
}

} // namespace kdac
