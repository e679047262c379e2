// tile.decayed_gram: halving anchors (dialect/Tile/Tile.td). At level b, rows
// are cut into blocks of 2b; the products between the second and the first
// half of a block are anchored at the last row m of the first half:
//   (x_i exp2(G_i - G_m)) . (y_j exp2(G_m - G_j)),   j <= m < i,
// so that both exponents are <= 0. Below `leaf`, one block per leaf is anchored
// at its first row. Only blocks below the diagonal are computed.
#include "TileToHostEmitter.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

// Blocks smaller than this have too few columns to fill vectors: they run
// vectors along the channels and sum across lanes.
static constexpr int64_t kSmallBlock = 8;

void Emitter::emitGram(DecayedGramOp op) {
  for (Value result : op.getResults())
    clear(*plan.buffer(result));
  int64_t rows = tileType(op.getRhs()).getDimSize(0);
  for (int64_t half = rows / 2; half >= int64_t(op.getLeaf()) && half > 0;
       half /= 2)
    emitGramLevel(op, half);
  emitGramLeaves(op);
}

void Emitter::clear(const Buffer &buffer) {
  int64_t lanes = lanesFor(buffer.cols, width);
  loop(0, buffer.rows, 1, [&](Value row) {
    loop(0, buffer.cols, lanes, [&](Value col) {
      storeBuffer(zeros(lanes), buffer, {row, col, lanes});
    });
  });
}

/// `tile` at `p` times the decay between its row and row `anchor`, rounded to
/// the operand type. A null anchor means no decay: the row against itself.
Value Emitter::scaled(DecayedGramOp op, Value tile, Point p, Value anchor,
                      bool isRight) {
  Value x = eval(tile, p);
  if (anchor) {
    Value g = eval(op.getDecay(), p);
    Value a = eval(op.getDecay(), {anchor, p.col, p.lanes});
    if (isRight)
      std::swap(g, a);
    Value factor = exp2(arith::SubFOp::create(b, loc, g, a));
    x = arith::MulFOp::create(b, loc, x, factor);
  }
  return round(x, op.getOperand());
}

void Emitter::emitScaledRows(DecayedGramOp op, Value tile, const Buffer &to,
                             Value begin, int64_t rows, Value anchor,
                             bool isRight) {
  int64_t cols = to.cols, lanes = lanesFor(cols, width);
  loop(0, rows, 1, [&](Value r) {
    Value row = add(begin, r);
    cacheRowFactors(tile, row, lanes);
    loop(0, cols, lanes, [&](Value col) {
      Point p{row, col, lanes};
      storeBuffer(scaled(op, tile, p, anchor, isRight), to, p);
    });
    cache.clear();
  });
}

/// The blocks of one level: rows [begin + half, begin + 2 half) against columns
/// [begin, begin + half).
void Emitter::emitGramLevel(DecayedGramOp op, int64_t half) {
  int64_t rows = tileType(op.getRhs()).getDimSize(0);
  ArrayRef<unsigned> temps = plan.temporaries(op);
  loop(0, rows, 2 * half, [&](Value begin) {
    Value row = add(begin, half), anchor = add(begin, half - 1);
    if (half < kSmallBlock) {
      for (size_t side = 0; side < op.getLhs().size(); ++side)
        emitSmallBlock(op, side, half, row, begin, anchor);
      return;
    }
    emitScaledRows(op, op.getRhs(), plan.buffer(temps[1]), begin, half, anchor,
                   /*isRight=*/true);
    transposeRows(plan.buffer(temps[1]), plan.buffer(temps[0]), begin, half);
    for (size_t side = 0; side < op.getLhs().size(); ++side) {
      emitScaledRows(op, op.getLhs()[side], plan.buffer(temps[2 + side]), row,
                     half, anchor, /*isRight=*/false);
      emitGramBlock(op, side, half, row, begin, /*isLeaf=*/false);
    }
  });
}

/// The diagonal blocks.
void Emitter::emitGramLeaves(DecayedGramOp op) {
  int64_t rows = tileType(op.getRhs()).getDimSize(0), leaf = op.getLeaf();
  ArrayRef<unsigned> temps = plan.temporaries(op);
  loop(0, rows, leaf, [&](Value begin) {
    Value anchor = leaf > 1 ? begin : Value();
    if (leaf < kSmallBlock) {
      for (size_t side = 0; side < op.getLhs().size(); ++side)
        emitSmallBlock(op, side, leaf, begin, begin, anchor);
      return;
    }
    emitScaledRows(op, op.getRhs(), plan.buffer(temps[1]), begin, leaf, anchor,
                   /*isRight=*/true);
    transposeRows(plan.buffer(temps[1]), plan.buffer(temps[0]), begin, leaf);
    for (size_t side = 0; side < op.getLhs().size(); ++side) {
      emitScaledRows(op, op.getLhs()[side], plan.buffer(temps[2 + side]), begin,
                     leaf, anchor, /*isRight=*/false);
      emitGramBlock(op, side, leaf, begin, begin, /*isLeaf=*/true);
    }
  });
}

/// Columns [begin, begin + rows) of `to` become rows of `from`.
void Emitter::transposeRows(const Buffer &from, const Buffer &to, Value begin,
                            int64_t rows) {
  Matrix source = matrix(from), target = matrix(to);
  source.base = at(source, begin, index(0));
  target.base = at(target, {}, begin);
  transpose(source, target, rows, from.cols);
}

void Emitter::emitGramBlock(DecayedGramOp op, size_t side, int64_t size,
                            Value row, Value col, bool isLeaf) {
  ArrayRef<unsigned> temps = plan.temporaries(op);
  const Buffer &to = *plan.buffer(op.getResults()[side]);
  bool strict = op.getStrict()[side];
  Product p;
  p.m = p.n = size, p.k = tileType(op.getRhs()).getDimSize(1);
  p.a = matrix(plan.buffer(temps[2 + side]));
  p.a.base = at(p.a, row, index(0));
  p.b = matrix(plan.buffer(temps[0]));
  p.b.base = at(p.b, {}, col);
  auto init = [&](Point at) { return zeros(at.lanes); };
  auto store = [&](Value value, Point p) {
    if (isLeaf)
      value = keepBelow(value, p, strict);
    storeBuffer(value, to, {add(row, p.row), add(col, p.col), p.lanes});
  };
  p.init = init, p.store = store;
  emitProduct(p);
}

/// Zeroes the elements above the diagonal, and on it if `strict`.
Value Emitter::keepBelow(Value value, Point p, bool strict) {
  Value limit = arith::SubIOp::create(b, loc, p.row, p.col);
  Value mask = maskBelow(add(limit, strict ? 0 : 1), p.lanes);
  return arith::SelectOp::create(b, loc, mask, value, zeros(p.lanes));
}

/// A block of few columns: one accumulator per element, vectors along the
/// channels. A diagonal block (row == col) computes its lower part only.
void Emitter::emitSmallBlock(DecayedGramOp op, size_t side, int64_t size,
                             Value row, Value col, Value anchor) {
  bool isLeaf = row == col, strict = op.getStrict()[side];
  SmallVector<std::pair<int64_t, int64_t>> elements;
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < (isLeaf ? i + !strict : size); ++j)
      elements.push_back({i, j});
  if (elements.empty())
    return;
  int64_t channels = tileType(op.getRhs()).getDimSize(1);
  int64_t lanes = lanesFor(channels, width);
  Values start(elements.size(), zeros(lanes));
  auto sum = scf::ForOp::create(b, loc, index(0), index(channels), index(lanes),
                                start);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(sum.getBody());
    Values left, right, next;
    for (int64_t i = 0; i < size; ++i) {
      Value c = sum.getInductionVar();
      Point l{add(row, i), c, lanes}, r{add(col, i), c, lanes};
      left.push_back(scaled(op, op.getLhs()[side], l, anchor, false));
      right.push_back(scaled(op, op.getRhs(), r, anchor, true));
    }
    for (auto [n, element] : llvm::enumerate(elements))
      next.push_back(vector::FMAOp::create(b, loc, left[element.first],
                                           right[element.second],
                                           sum.getRegionIterArg(n)));
    scf::YieldOp::create(b, loc, next);
  }
  const Buffer &to = *plan.buffer(op.getResults()[side]);
  for (auto [n, element] : llvm::enumerate(elements))
    storeBuffer(reduceLanes(/*greatest=*/false, sum.getResult(n)), to,
                {add(row, element.first), add(col, element.second), 0});
}

} // namespace kdac::host
