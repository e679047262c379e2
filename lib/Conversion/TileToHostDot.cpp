// Products: a microkernel that keeps a block of rows x vectors of the result in
// registers, reads the right side by vectors and broadcasts the left side.
// Measured against OpenBLAS in docs/decisions/0010-host-values-are-pulled.md.
#include "TileToHostEmitter.h"

#include "mlir/IR/Matchers.h"

#include <numeric>

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

// 8 x 2 accumulators: 16 independent FMA chains cover the latency of two FMA
// units, and with 2 vectors of the right side fit into 32 registers. AVX2's 16
// registers hold 4 x 2 or 4 x 3.
static int64_t blockRows(int64_t width) { return width >= 16 ? 8 : 4; }
static constexpr int64_t kBlockVectors = 2;
static constexpr int64_t kUnroll = 2;

/// `column <= row ? x : 0` or `column < row ? x : 0`.
static bool isLowerMask(arith::SelectOp select) {
  auto below = select.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!below || !matchPattern(select.getFalseValue(), m_PosZeroFloat()))
    return false;
  auto cols = below.getLhs().getDefiningOp<IotaOp>();
  auto rows = below.getRhs().getDefiningOp<IotaOp>();
  bool ordered = below.getPredicate() == arith::CmpIPredicate::sle ||
                 below.getPredicate() == arith::CmpIPredicate::slt;
  return ordered && cols && rows && cols.getDim() == 1 && rows.getDim() == 0;
}

/// A value that is zero above its diagonal whatever the inputs: products with
/// it may stop at the diagonal.
static bool isLowerTriangular(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (isa<DecayedGramOp, UnitTrilInverseOp>(op))
    return true;
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return isLowerMask(select);
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::NegFOp>(op))
    return isLowerTriangular(op->getOperand(0));
  if (isa<arith::MulFOp>(op))
    return llvm::any_of(op->getOperands(), isLowerTriangular);
  return false;
}

void Emitter::emitDot(DotOp op) {
  auto type = cast<RankedTensorType>(op.getResult().getType());
  auto a = cast<RankedTensorType>(op.getA().getType());
  Product p;
  p.m = type.getDimSize(0), p.n = type.getDimSize(1);
  p.k = a.getDimSize(op.getTransA() ? 0 : 1);
  p.a = matrix(*plan.buffer(op.getA()));
  p.a.transposed = op.getTransA();
  p.lowerA = !op.getTransA() && isLowerTriangular(op.getA());
  p.b = matrix(*plan.buffer(op.getB()));
  if (op.getTransB()) {
    Matrix copy = matrix(plan.buffer(plan.temporaries(op)[0]));
    transpose(p.b, copy, p.n, p.k);
    p.b = copy;
  }
  const Buffer &to = *plan.buffer(op.getResult());
  auto init = [&](Point at) {
    return op.getAcc() ? eval(op.getAcc(), at) : zeros(at.lanes);
  };
  auto store = [&](Value value, Point at) { storeBuffer(value, to, at); };
  p.init = init, p.store = store;
  emitProduct(p);
}

void Emitter::emitProduct(const Product &p) {
  int64_t lanes = lanesFor(p.n, width);
  int64_t panel = kBlockVectors * lanes, main = p.n / panel * panel;
  loop(0, main, panel,
       [&](Value col) { emitProductColumns(p, col, kBlockVectors, lanes); });
  if (main < p.n)
    emitProductColumns(p, index(main), (p.n - main) / lanes, lanes);
}

/// All rows of one panel of columns, which stays in the L1 cache.
void Emitter::emitProductColumns(const Product &p, Value col, int64_t vectors,
                                 int64_t lanes) {
  int64_t rows = blockRows(width), main = p.m / rows * rows;
  loop(0, main, rows, [&](Value row) {
    emitProductBlock(p, {row, col, lanes}, rows, vectors);
  });
  if (main < p.m)
    emitProductBlock(p, {index(main), col, lanes}, p.m - main, vectors);
}

/// One k: every row of the left side times the vectors of the right side.
Emitter::Values Emitter::productStep(const Product &p, Point at, Value k,
                                     int64_t vectors, Values sums) {
  Values right;
  for (int64_t v = 0; v < vectors; ++v)
    right.push_back(
        loadF32(this->at(p.b, k, add(at.col, v * at.lanes)), at.lanes));
  for (size_t i = 0; i < sums.size(); i += vectors) {
    Value row = add(at.row, i / vectors);
    Value left = splat(loadF32(this->at(p.a, row, k), 0), at.lanes);
    for (int64_t v = 0; v < vectors; ++v)
      sums[i + v] = vector::FMAOp::create(b, loc, left, right[v], sums[i + v]);
  }
  return sums;
}

void Emitter::emitProductBlock(const Product &p, Point at, int64_t rows,
                               int64_t vectors) {
  auto point = [&](int64_t r, int64_t v) {
    return Point{add(at.row, r), add(at.col, v * at.lanes), at.lanes};
  };
  Values accumulators;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      accumulators.push_back(p.init(point(r, v)));
  Value end = index(p.k);
  int64_t unroll = std::gcd(p.k, kUnroll);
  if (p.lowerA) {
    end = arith::MinSIOp::create(b, loc, add(at.row, rows), end);
    unroll = std::gcd(unroll, rows);
  }
  auto sum =
      scf::ForOp::create(b, loc, index(0), end, index(unroll), accumulators);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(sum.getBody());
    Values next(sum.getRegionIterArgs());
    for (int64_t u = 0; u < unroll; ++u)
      next = productStep(p, at, add(sum.getInductionVar(), u), vectors, next);
    scf::YieldOp::create(b, loc, next);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      p.store(sum.getResult(r * vectors + v), point(r, v));
}

//===-- Transposition -----------------------------------------------------===//

/// Transposes a square of n vectors of n lanes in log2(n) rounds of shuffles.
Emitter::Values Emitter::transposeSquare(Values rows) {
  int64_t n = rows.size();
  for (int64_t s = 1; s < n; s *= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < n; ++lane) {
      bool upper = lane & s;
      low.push_back(upper ? n + lane - s : lane);
      high.push_back(upper ? n + lane : lane + s);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i & s)
        continue;
      Value x = rows[i], y = rows[i + s];
      rows[i] = vector::ShuffleOp::create(b, loc, x, y, low);
      rows[i + s] = vector::ShuffleOp::create(b, loc, x, y, high);
    }
  }
  return rows;
}

/// to[c][r] = from[r][c] for rows x cols elements of `from`.
void Emitter::transpose(const Matrix &from, const Matrix &to, int64_t rows,
                        int64_t cols) {
  int64_t n = std::min(lanesFor(rows, width), lanesFor(cols, width));
  loop(0, rows, n, [&](Value row) {
    loop(0, cols, n, [&](Value col) {
      Values lines;
      for (int64_t t = 0; t < n; ++t)
        lines.push_back(loadF32(at(from, add(row, t), col), n));
      for (auto [t, value] : llvm::enumerate(transposeSquare(lines)))
        storeF32(value, at(to, add(col, t), row));
    });
  });
}

} // namespace kdac::host
