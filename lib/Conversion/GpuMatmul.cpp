// Sums of products by wgmma: a warpgroup has 64 rows of the result in
// accumulators, all threads copy.
//
// A turn's products run while the next turn's start, so that the tensor cores
// always have some: a turn waits for the products of the one before it, and at
// its beginning, where the warps meet, everyone has waited for those of the one
// before that. Their buffers are filled next: copies are two turns less ahead
// than there are buffers.
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
    copy(cast<tile::LoadOp>(op), layout, bufferOf(op->getResult(0), number));
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

LogicalResult MatmulLowering::run(scf::ForOp of) {
  if (failed(match(of)))
    return failure();
  for (Value init : loop.getInitArgs())
    sums.append(elements(init));
  at.memo.clear();
  pickRows();
  for (int64_t i = 0; i < ahead; ++i)
    copyOf(b.i32(i));
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
  return success();
}

} // namespace kdac
