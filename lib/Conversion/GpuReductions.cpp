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
  computeToShared(
      op.getResult(), linear(type.getShape(), isVector ? 1 : 4),
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
  int64_t cols = type.getDimSize(1);
  int64_t width = cols % 128 == 0 ? 4 : cols % 64 == 0 ? 2 : 1;
  access(rangesRead(op.getInput()), {range(op.getResult())});
  forget();
  forWholeOrNot(op.getInput(), {}, [&] { sumRows(op, width); });
}

void GpuLowering::sumRows(tile::ReduceOp op, int64_t width) {
  auto type = tileType(op.getInput());
  int64_t rows = type.getDimSize(0), cols = type.getDimSize(1);
  holdStores();
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
        auto branch =
            scf::IfOp::create(b, TypeRange{b.getF32Type()}, inside, true);
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
  releaseStores();
}

/// Sums over the rows of a state tile: in the thread, then across lanes. Every
/// thread ends with the totals of its columns.
void GpuLowering::reduceState(tile::ReduceOp op) {
  access(rangesRead(op.getInput()), {});
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
Value GpuLowering::reduceVector(tile::ReduceOp op) {
  Value vector = op.getInput();
  access(rangesRead(vector), {});
  int64_t size = tileType(vector).getDimSize(0);
  int64_t width = size % 128 == 0 ? 4 : size % 64 == 0 ? 2 : 1;
  Value sum = op.getGreatest() ? Value() : b.f32(0);
  for (int64_t first = 0; first < size; first += 32 * width) {
    Group group;
    group.col = {b.mul(lane, width), first};
    group.width = width;
    for (Value element : evaluate(vector, group))
      sum = joined(op, sum, element);
  }
  return joinLanes(op, sum, {16, 8, 4, 2, 1});
}

/// What a reduction does with two numbers; null: with the first alone.
Value GpuLowering::joined(tile::ReduceOp op, Value x, Value y) {
  if (!x)
    return y;
  if (op.getGreatest())
    return arith::MaxNumFOp::create(b, x, y);
  return b.addF(x, y);
}

Value GpuLowering::joinLanes(tile::ReduceOp op, Value x,
                             ArrayRef<int64_t> masks) {
  for (int64_t mask : masks)
    x = joined(op, x, b.shuffleXor(x, mask));
  return x;
}

/// Rows of fragments: in the thread, across the four lanes of a row, then
/// across the warps, through shared memory. Every thread ends with its rows'.
void GpuLowering::reduceFragments(tile::ReduceOp op) {
  auto shape = tileType(op.getInput()).getShape();
  const Layout &layout = distributed(shape);
  access(rangesRead(op.getInput()), {});
  const Layout &rows = distributed(shape[0]);
  Values totals(rows.slots);
  for (const Group &group : layout.groups)
    for (Value element : evaluate(op.getInput(), group)) {
      if (group.isRepeat && !op.getGreatest())
        element = arith::SelectOp::create(b, group.isRepeat, b.f32(0), element);
      totals[group.columnSlot] = joined(op, totals[group.columnSlot], element);
    }
  for (Value &total : totals)
    total = joinLanes(op, total, {2, 1});
  registers[op.getResult()] = totals;
  int64_t parts = warpsOfRow(shape[0]);
  if (parts == 1)
    return;
  int64_t offset = place(op.getResult(), 1).getOffset();
  auto part = [&](const Group &row, Coord number) {
    return sharedAddress(offset, parts, b.getF32Type(), row.col, number);
  };
  Range all = {offset, offset + shape[0] * parts * 4};
  access({}, {all});
  {
    auto speaks = scf::IfOp::create(b, b.equal(b.rem(lane, 4), b.i32(0)),
                                    /*withElse=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(speaks.thenBlock());
    for (const Group &row : rows.groups)
      b.store(totals[row.slot], part(row, {b.rem(warp, parts), 0}),
              b.getF32Type(), 4);
  }
  access({all}, {});
  int64_t count = std::min<int64_t>(4, parts); // of one access
  for (const Group &row : rows.groups) {
    Value total;
    for (int64_t first = 0; first < parts; first += count)
      for (Value one : b.load(part(row, {Value(), first}), b.getF32Type(),
                              count, 4 * count))
        total = joined(op, total, one);
    registers[op.getResult()][row.slot] = total;
  }
}

/// Columns in loops over tiles: lines of threads, one a column, take rows in
/// turn; then their parts are joined.
LogicalResult GpuLowering::reduceColumns(tile::ReduceOp op) {
  auto shape = tileType(op.getInput()).getShape();
  int64_t rows = shape[0], cols = shape[1], lines = threads / cols;
  if (threads % cols != 0 || rows % lines != 0)
    return op->emitOpError()
           << "reduces " << rows << " rows of " << cols << " columns with "
           << threads << " threads, which should be a multiple of the columns";
  int64_t offset = place(op.getResult(), 1).getOffset();
  Range parts = {offset, offset + threads * 4};
  access(rangesRead(op.getInput()), {parts});
  forget();
  Value line = b.div(thread, cols), column = b.rem(thread, cols);
  Value total;
  for (int64_t row = 0; row < rows; row += lines) {
    Group group;
    group.row = {line, row};
    group.col = {column, 0};
    total = joined(op, total, evaluate(op.getInput(), group)[0]);
  }
  auto part = [&](Value of, int64_t number) {
    return sharedAddress(offset, cols, b.getF32Type(), {of, number},
                         {column, 0});
  };
  b.store(total, part(line, 0), b.getF32Type(), 4);
  access({parts}, {range(op.getResult())});
  total = Value();
  for (int64_t i = 0; i < lines; ++i)
    total = joined(op, total, b.load(part({}, i), b.getF32Type(), 1, 4)[0]);
  Group result; // all lines store equal values
  result.col = {column, 0};
  storeShared(op.getResult(), result, total);
  return success();
}

/// The sum of a row, in every thread: threads add what they hold, warps add
/// that, and each thread adds the warps' parts, in one order.
Value GpuLowering::reduceRow(tile::ReduceOp op) {
  constexpr int64_t words = 4; // of one access
  access(rangesRead(op.getInput()), {});
  Value sum = op.getGreatest() ? Value() : b.f32(0);
  for (const Group &group :
       distributed(tileType(op.getInput()).getShape()).groups)
    for (Value element : evaluate(op.getInput(), group))
      sum = joined(op, sum, element);
  sum = joinLanes(op, sum, {16, 8, 4, 2, 1});
  tile::PlaceAttr at = place(op.getResult());
  auto part = [&](Value number, int64_t offset) {
    return sharedAddress(at.getOffset(), 0, b.getF32Type(), {},
                         {number, offset});
  };
  Range parts = {at.getOffset(), at.getOffset() + warps * 4};
  access({}, {parts});
  {
    auto speaks =
        scf::IfOp::create(b, b.equal(lane, b.i32(0)), /*withElse=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(speaks.thenBlock());
    b.store(sum, part(warp, 0), b.getF32Type(), 4);
  }
  access({parts}, {});
  Value total;
  for (int64_t first = 0, count; first < warps; first += count) {
    count = warps - first >= words ? words : 1;
    for (Value one : b.load(part({}, first), b.getF32Type(), count, 4 * count))
      total = joined(op, total, one);
  }
  return total;
}

LogicalResult GpuLowering::lowerReduce(tile::ReduceOp op) {
  if (home(op.getResult()) == tile::Home::Registers &&
      tile::loopsOverTiles(schedule)) {
    reduceFragments(op);
    return success();
  }
  bool isVector = tileType(op.getInput()).getRank() == 1;
  if (!isVector && op.getAlong() == 0 && tile::loopsOverTiles(schedule))
    return reduceColumns(op);
  if (op.getGreatest() && !isVector)
    return op->emitOpError() << "finds the greatest along rows that no product "
                                "made; of products, columns and vectors works";
  if (isOneRow())
    scalars.map(op.getResult(), reduceRow(op));
  else if (tileType(op.getInput()).getRank() == 1)
    scalars.map(op.getResult(), reduceVector(op));
  else if (op.getAlong() == 1)
    reduceRows(op);
  else
    reduceState(op);
  return success();
}

void GpuLowering::lowerRowScalar(tile::RowOp op) {
  access(rangesRead(op.getInput()), {});
  Group group;
  group.col = {Value(), static_cast<int64_t>(op.getIndex())};
  scalars.map(op.getResult(), evaluate(op.getInput(), group)[0]);
}

/// Blocks of 16 rows on the diagonal, (I + L_bb) X_bb = I by forward
/// substitution, one thread per column; then what is below them, block column
/// by block column: X_ij = -X_ii (sum over k of L_ik X_kj), one element per
/// thread and turn. Everything in f32.
void GpuLowering::lowerInverse(tile::UnitTrilInverseOp op) {
  int64_t size = tileType(op.getInput()).getDimSize(0);
  int64_t block = std::min<int64_t>(16, size);
  access({range(op.getInput())}, {range(op.getResult())});
  forget();
  zeroUpper(op, block);
  invertDiagonal(op, block);
  for (int64_t row = block; row < size; row += block)
    for (int64_t col = row - block; col >= 0; col -= block)
      invertBelow(op, row, col, block);
  pendingWrites.push_back(range(op.getResult()));
}

/// Blocks above the diagonal, which nothing else of the inverse touches.
void GpuLowering::zeroUpper(tile::UnitTrilInverseOp op, int64_t block) {
  int64_t size = tileType(op.getInput()).getDimSize(0);
  for (int64_t row = 0; row < size; row += block)
    for (int64_t col = row + block; col < size; col += block)
      forGroups(linear({block, block}, 4), [&](Group group) {
        group.row.offset += row;
        group.col.offset += col;
        storeShared(op.getResult(), group, Values(4, b.f32(0)));
      });
}

void GpuLowering::invertDiagonal(tile::UnitTrilInverseOp op, int64_t block) {
  int64_t size = tileType(op.getInput()).getDimSize(0);
  auto branch = scf::IfOp::create(b, b.less(thread, b.i32(size)), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value start = b.mul(b.div(thread, block), block),
        inBlock = b.rem(thread, block);
  holdStores();
  Values column;
  for (int64_t i = 0; i < block; ++i) {
    Value onDiagonal =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, inBlock, b.i32(i));
    Value x = arith::SelectOp::create(b, onDiagonal, b.f32(1), b.f32(0));
    // Two partial sums shorten the chain of dependent additions.
    Values partial(2, Value());
    for (int64_t k = 0; k < i; ++k) {
      Group group;
      group.row = {start, i};
      group.col = {start, k / 4 * 4};
      group.width = 4;
      Value factor = evaluate(op.getInput(), group)[k % 4];
      Value &sum = partial[k % 2];
      sum = sum ? b.fma(factor, column[k], sum) : b.mulF(factor, column[k]);
    }
    for (Value sum : partial)
      if (sum)
        x = arith::SubFOp::create(b, x, sum);
    column.push_back(x);
    Group result;
    result.row = {start, i};
    result.col = {thread, 0};
    storeShared(op.getResult(), result, x);
  }
  memo.clear();
  releaseStores();
}

/// One block below the diagonal, in two steps with a barrier before each: the
/// sum, kept where the block will be, then its product with the inverse of the
/// diagonal block.
void GpuLowering::invertBelow(tile::UnitTrilInverseOp op, int64_t row,
                              int64_t col, int64_t block) {
  auto readAt = [&](Value tile, Coord r, Coord c, int64_t width) {
    Group group;
    group.row = r;
    group.col = c;
    group.width = width;
    return loadShared(tile, group);
  };
  auto forElements = [&](llvm::function_ref<Value(Value, Value)> compute) {
    synchronise();
    Values results, rows, cols;
    for (int64_t first = 0; first < block * block; first += threads) {
      Value number = b.rem(b.add(thread, first), block * block);
      rows.push_back(b.div(number, block));
      cols.push_back(b.rem(number, block));
      results.push_back(compute(rows.back(), cols.back()));
    }
    synchronise(); // all have read what some overwrite now
    for (auto [r, c, result] : llvm::zip(rows, cols, results)) {
      Group group;
      group.row = {r, row};
      group.col = {c, col};
      storeShared(op.getResult(), group, result);
    }
  };
  Value l = op.getInput(), x = op.getResult();
  forElements([&](Value r, Value c) {
    Value sum;
    for (int64_t k = col; k < row; k += 4) {
      Values factors = readAt(l, {r, row}, {Value(), k}, 4);
      for (int64_t i = 0; i < 4; ++i) {
        Value right = readAt(x, {Value(), k + i}, {c, col}, 1)[0];
        sum = sum ? b.fma(factors[i], right, sum) : b.mulF(factors[i], right);
      }
    }
    return sum;
  });
  forElements([&](Value r, Value c) {
    Value sum = b.f32(0);
    for (int64_t k = 0; k < block; k += 4) {
      Values factors = readAt(x, {r, row}, {Value(), row + k}, 4);
      for (int64_t i = 0; i < 4; ++i) {
        Value right = readAt(x, {Value(), row + k + i}, {c, col}, 1)[0];
        sum = arith::SubFOp::create(b, sum, b.mulF(factors[i], right),
                                    arith::FastMathFlags::contract);
      }
    }
    return sum;
  });
}

} // namespace kdac
