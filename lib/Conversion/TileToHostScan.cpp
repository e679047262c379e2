// Sums along a dimension, running sums, and the unit triangular inverse.
#include "TileToHostEmitter.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

//===-- tile.cumsum -------------------------------------------------------===//

/// Rows are added in order, one vector of columns at a time: row r depends on
/// rows 0..r only.
void Emitter::emitCumsum(CumsumOp op) {
  RankedTensorType type = tileType(op.getResult());
  const Buffer &to = *plan.buffer(op.getResult());
  if (type.getRank() != 2)
    return emitVectorCumsum(op);
  int64_t lanes = lanesFor(type.getDimSize(1), width);
  loop(0, type.getDimSize(1), lanes, [&](Value col) {
    auto sum = scf::ForOp::create(b, loc, index(0), index(type.getDimSize(0)),
                                  index(1), ValueRange{zeros(lanes)});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(sum.getBody());
    Point p{sum.getInductionVar(), col, lanes};
    Value next = arith::AddFOp::create(b, loc, sum.getRegionIterArg(0),
                                       eval(op.getInput(), p));
    storeBuffer(next, to, p);
    scf::YieldOp::create(b, loc, next);
  });
}

/// The rows of a vector are its elements.
void Emitter::emitVectorCumsum(CumsumOp op) {
  const Buffer &to = *plan.buffer(op.getResult());
  auto sum = scf::ForOp::create(b, loc, index(0), index(to.cols), index(1),
                                ValueRange{f32(0.0)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(sum.getBody());
  Point p{{}, sum.getInductionVar(), 0};
  Value next = arith::AddFOp::create(b, loc, sum.getRegionIterArg(0),
                                     eval(op.getInput(), p));
  storeBuffer(next, to, p);
  scf::YieldOp::create(b, loc, next);
}

//===-- tile.reduce -------------------------------------------------------===//

/// What a reduction begins with.
Value Emitter::neutral(bool greatest, int64_t lanes) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return greatest ? splat(f32(-infinity), lanes) : zeros(lanes);
}

Value Emitter::joined(bool greatest, Value x, Value y) {
  if (greatest)
    return arith::MaxNumFOp::create(b, loc, x, y);
  return arith::AddFOp::create(b, loc, x, y);
}

/// The sum of one row, or its greatest element: lanes of several vectors first,
/// then the vectors and their lanes in a fixed tree. Rounding errors grow with
/// the square root of the terms one number takes up, so a long row is summed
/// block by block, and the blocks' sums after that.
Value Emitter::reduceRow(ReduceOp op, Value row, int64_t size) {
  constexpr int64_t kTerms = 32; // that one lane takes up in a block
  int64_t lanes = lanesFor(size, width), vectors = 4;
  while (size / lanes % vectors != 0)
    vectors /= 2;
  int64_t block = vectors * lanes * kTerms;
  Values sums = reduceBlock(op, row, index(0), index(std::min(block, size)),
                            vectors, lanes);
  if (size > block) {
    auto total = scf::ForOp::create(b, loc, index(block), index(size),
                                    index(block), sums);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(total.getBody());
    Value at = total.getInductionVar();
    Value end = arith::MinSIOp::create(b, loc, add(at, block), index(size));
    Values next = reduceBlock(op, row, at, end, vectors, lanes);
    for (int64_t v = 0; v < vectors; ++v)
      next[v] = joined(op.getGreatest(), total.getRegionIterArg(v), next[v]);
    scf::YieldOp::create(b, loc, next);
    sums.assign(total.getResults().begin(), total.getResults().end());
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (size_t v = 0; v < sums.size() / 2; ++v)
      sums[v] = joined(op.getGreatest(), sums[v], sums[sums.size() / 2 + v]);
  return reduceLanes(op.getGreatest(), sums.front());
}

/// Elements begin to end of a row, lane by lane of so many vectors.
Emitter::Values Emitter::reduceBlock(ReduceOp op, Value row, Value begin,
                                     Value end, int64_t vectors,
                                     int64_t lanes) {
  Values start(vectors, neutral(op.getGreatest(), lanes));
  auto sum =
      scf::ForOp::create(b, loc, begin, end, index(vectors * lanes), start);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(sum.getBody());
  Values next;
  for (int64_t v = 0; v < vectors; ++v) {
    Value at = add(sum.getInductionVar(), v * lanes);
    Value x = eval(op.getInput(), {row, at, lanes});
    next.push_back(joined(op.getGreatest(), sum.getRegionIterArg(v), x));
  }
  scf::YieldOp::create(b, loc, next);
  return Values(sum.getResults());
}

/// Adds the upper half of the lanes to the lower half until one is left.
Value Emitter::reduceLanes(bool greatest, Value x) {
  int64_t lanes = cast<VectorType>(x.getType()).getNumElements();
  for (; lanes > 1; lanes /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < lanes / 2; ++lane)
      low.push_back(lane), high.push_back(lanes / 2 + lane);
    Value lower = vector::ShuffleOp::create(b, loc, x, x, low);
    Value upper = vector::ShuffleOp::create(b, loc, x, x, high);
    x = joined(greatest, lower, upper);
  }
  return vector::ExtractOp::create(b, loc, x, 0);
}

void Emitter::emitReduce(ReduceOp op) {
  RankedTensorType type = tileType(op.getInput());
  if (type.getRank() == 1) {
    scalars.map(op.getResult(), reduceRow(op, Value(), type.getDimSize(0)));
    return;
  }
  int64_t rows = type.getDimSize(0), cols = type.getDimSize(1);
  if (op.getAlong() == 1) {
    const Buffer &to = *plan.buffer(op.getResult());
    loop(0, rows, 1, [&](Value row) {
      cacheRowFactors(op.getInput(), row, lanesFor(cols, width));
      storeBuffer(reduceRow(op, row, cols), to, {{}, row, 0});
      cache.clear();
    });
    return;
  }
  // Several vectors of columns at a time: whole cache lines and row factors
  // are shared between them.
  constexpr int64_t kVectors = 4;
  int64_t lanes = lanesFor(cols, width), panel = kVectors * lanes;
  int64_t main = cols / panel * panel;
  loop(0, main, panel,
       [&](Value col) { emitReduceColumns(op, col, kVectors, lanes); });
  if (main < cols)
    emitReduceColumns(op, index(main), (cols - main) / lanes, lanes);
}

void Emitter::emitReduceColumns(ReduceOp op, Value col, int64_t vectors,
                                int64_t lanes) {
  int64_t rows = tileType(op.getInput()).getDimSize(0);
  const Buffer &to = *plan.buffer(op.getResult());
  Values start(vectors, neutral(op.getGreatest(), lanes));
  auto sum = scf::ForOp::create(b, loc, index(0), index(rows), index(1), start);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(sum.getBody());
    Value row = sum.getInductionVar();
    cacheRowFactors(op.getInput(), row, lanes);
    Values next;
    for (int64_t v = 0; v < vectors; ++v) {
      Value x = eval(op.getInput(), {row, add(col, v * lanes), lanes});
      next.push_back(joined(op.getGreatest(), sum.getRegionIterArg(v), x));
    }
    scf::YieldOp::create(b, loc, next);
    cache.clear();
  }
  for (int64_t v = 0; v < vectors; ++v)
    storeBuffer(sum.getResult(v), to, {{}, add(col, v * lanes), lanes});
}

//===-- tile.unit_tril_inverse --------------------------------------------===//

/// Blocked forward substitution: rows of X = (I + L)^-1 by blocks of 8,
/// X_i = E_i - L_i,<i X_<i by the product loop, then within the block.
void Emitter::emitInverse(UnitTrilInverseOp op) {
  constexpr int64_t kBlock = 8;
  int64_t size = tileType(op.getResult()).getDimSize(0);
  int64_t block = std::min(kBlock, size), main = size / block * block;
  loop(0, main, block, [&](Value row) { emitInverseRows(op, row, block); });
  if (main < size)
    emitInverseRows(op, index(main), size - main);
}

void Emitter::emitInverseRows(UnitTrilInverseOp op, Value row, int64_t rows) {
  Matrix x = matrix(*plan.buffer(op.getResult()));
  int64_t size = tileType(op.getResult()).getDimSize(0);
  int64_t lanes = lanesFor(size, width);
  auto minusL = [&](Value r, Value c) {
    Value l = eval(op.getInput(), {r, c, 0});
    return splat(arith::NegFOp::create(b, loc, l), lanes);
  };
  loop(0, size, lanes, [&](Value col) {
    Values start;
    for (int64_t r = 0; r < rows; ++r)
      start.push_back(identityRow(add(row, r), col, lanes));
    // Column block `col` of X is zero above row `col`.
    auto sum = scf::ForOp::create(b, loc, col, row, index(1), start);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(sum.getBody());
      Value k = sum.getInductionVar();
      Value right = loadF32(at(x, k, col), lanes);
      Values next;
      for (int64_t r = 0; r < rows; ++r)
        next.push_back(
            fma(minusL(add(row, r), k), right, sum.getRegionIterArg(r)));
      scf::YieldOp::create(b, loc, next);
    }
    Values done(sum.getResults());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t s = 0; s < r; ++s)
        done[r] = fma(minusL(add(row, r), add(row, s)), done[s], done[r]);
      storeF32(done[r], at(x, add(row, r), col));
    }
  });
}

/// Lanes of row `row` of the identity, from column `col` on.
Value Emitter::identityRow(Value row, Value col, int64_t lanes) {
  Value distance = arith::TruncIOp::create(
      b, loc, b.getI32Type(), arith::SubIOp::create(b, loc, row, col));
  Value is = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                   iota(lanes, 32), splat(distance, lanes));
  return arith::SelectOp::create(b, loc, is, splat(f32(1.0), lanes),
                                 zeros(lanes));
}

} // namespace kdac::host
