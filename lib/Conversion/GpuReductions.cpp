// Sums along a dimension, cumulative sums, the triangular inverse.
#include "GpuLowering.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The input is computed into the result's buffer by all threads; then one
/// thread per column adds its rows from top to bottom.
void GpuLowering::lowerCumsum(tile::CumsumOp op) {
  auto type = tileType(op.getResult());
  bool isVector = type.getRank() == 1;
  access(rangesRead(op.getInput()), {range(op.getResult())});
  computeToShared(op.getResult(), linear(type.getShape(), isVector ? 1 : 4),
                  [&](const Group &group) { return evaluate(op.getInput(), group); });
  synchronise();
  int64_t rows = type.getDimSize(0), cols = isVector ? 1 : type.getDimSize(1);
  for (int64_t first = 0; first < cols; first += threads) {
    Value column = b.add(thread, first);
    OpBuilder::InsertionGuard guard(b);
    if (cols % threads != 0) {
      auto branch = scf::IfOp::create(b, b.less(column, b.i32(cols)), false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    Value sum;
    for (int64_t row = 0; row < rows; ++row) {
      Group group;
      (isVector ? group.col : group.row) = {Value(), row};
      if (!isVector)
        group.col = {column, 0};
      Value element = loadShared(op.getResult(), group)[0];
      sum = sum ? b.addF(sum, element) : element;
      storeShared(op.getResult(), group, sum);
    }
  }
  pendingWrites.push_back(range(op.getResult()));
}

/// Sums of rows: a warp per row, lanes across it.
void GpuLowering::reduceRows(tile::ReduceOp op) {
  auto type = tileType(op.getInput());
  int64_t rows = type.getDimSize(0), cols = type.getDimSize(1);
  int64_t width = cols % 128 == 0 ? 4 : cols % 64 == 0 ? 2 : 1;
  access(rangesRead(op.getInput()), {range(op.getResult())});
  forget();
  for (int64_t first = 0; first < rows; first += warps) {
    Value row = b.add(warp, first);
    if (rows % warps != 0) // surplus warps repeat rows
      row = b.rem(row, rows);
    Value sum = b.f32(0);
    for (int64_t col = 0; col < cols; col += 32 * width) {
      Group group;
      group.row = {row, 0};
      group.col = {b.mul(lane, width), col};
      group.width = width;
      Values elements;
      if (cols - col >= 32 * width) {
        elements = evaluate(op.getInput(), group);
      } else { // a narrow tail: lanes past it add zero
        Value inside = b.less(b.at(group.col), b.i32(cols));
        auto branch = scf::IfOp::create(b, TypeRange{b.getF32Type()}, inside, true);
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(branch.thenBlock());
        scf::YieldOp::create(b, evaluate(op.getInput(), group));
        b.setInsertionPointToStart(branch.elseBlock());
        scf::YieldOp::create(b, Values{b.f32(0)});
        elements = {branch.getResult(0)};
        memo.clear();
      }
      for (Value element : elements)
        sum = b.addF(sum, element);
    }
    Group result;
    result.col = {row, 0};
    storeShared(op.getResult(), result, b.sumLanes(sum, {16, 8, 4, 2, 1}));
  }
}

/// Sums over the rows of a state tile: in the thread, then across lanes. Every
/// thread ends with the totals of its columns.
void GpuLowering::reduceState(tile::ReduceOp op) {
  const Layout &layout = distributed(tileType(op.getInput()).getShape());
  Values totals(layout.columnSlots);
  for (const Group &group : layout.groups) {
    Values elements = evaluate(op.getInput(), group);
    for (auto [i, element] : llvm::enumerate(elements)) {
      Value &total = totals[group.columnSlot + (group.along == 1 ? i : 0)];
      total = total ? b.addF(total, element) : element;
    }
  }
  for (Value &total : totals)
    total = b.sumLanes(total, layout.rowLanes);
  registers[op.getResult()] = totals;
}

/// The sum of a vector, in every thread: each warp adds it for itself.
Value GpuLowering::reduceVector(Value vector) {
  access(rangesRead(vector), {});
  int64_t size = tileType(vector).getDimSize(0);
  int64_t width = size % 128 == 0 ? 4 : size % 64 == 0 ? 2 : 1;
  Value sum = b.f32(0);
  for (int64_t first = 0; first < size; first += 32 * width) {
    Group group;
    group.col = {b.mul(lane, width), first};
    group.width = width;
    for (Value element : evaluate(vector, group))
      sum = b.addF(sum, element);
  }
  return b.sumLanes(sum, {16, 8, 4, 2, 1});
}

void GpuLowering::lowerReduce(tile::ReduceOp op) {
  if (tileType(op.getInput()).getRank() == 1)
    scalars.map(op.getResult(), reduceVector(op.getInput()));
  else if (op.getAlong() == 1)
    reduceRows(op);
  else
    reduceState(op);
}

void GpuLowering::lowerRowScalar(tile::RowOp op) {
  access(rangesRead(op.getInput()), {});
  Group group;
  group.col = {Value(), static_cast<int64_t>(op.getIndex())};
  scalars.map(op.getResult(), evaluate(op.getInput(), group)[0]);
}

/// (I + L) X = I by forward substitution, one thread per column of X.
void GpuLowering::lowerInverse(tile::UnitTrilInverseOp op) {
  int64_t size = tileType(op.getInput()).getDimSize(0);
  access({range(op.getInput())}, {range(op.getResult())});
  forget();
  Value owns = b.less(thread, b.i32(size));
  auto branch = scf::IfOp::create(b, owns, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Values column;
  for (int64_t i = 0; i < size; ++i) {
    Value onDiagonal = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, thread,
                                             b.i32(i));
    Value x = arith::SelectOp::create(b, onDiagonal, b.f32(1), b.f32(0));
    // Four partial sums shorten the chain of dependent additions.
    Values partial(4, Value());
    for (int64_t k = 0; k < i; ++k) {
      Group group;
      group.row = {Value(), i};
      group.col = {Value(), k / 4 * 4};
      group.width = 4;
      Value factor = evaluate(op.getInput(), group)[k % 4];
      Value &sum = partial[k % 4];
      sum = sum ? b.fma(factor, column[k], sum) : b.mulF(factor, column[k]);
    }
    memo.clear();
    for (Value sum : partial)
      if (sum)
        x = arith::SubFOp::create(b, x, sum);
    column.push_back(x);
    Group result;
    result.row = {Value(), i};
    result.col = {thread, 0};
    storeShared(op.getResult(), result, x);
  }
}

} // namespace kdac
