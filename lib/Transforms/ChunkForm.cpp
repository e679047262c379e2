// The chunk (WY) form: design section 4. One loop over chunks carries the
// state.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

namespace {

/// One chunk's tiles. Shapes: C tokens, K key channels, V columns of the slice.
struct Chunk {
  Value first, valid; ///< first token, number of tokens that exist
  Value q, k, v;      ///< [C, K], [C, K], [C, V], f32; q and k normalised
  Value beta;         ///< [C] or null
  Value cumulative;   ///< G: [C, K], [C] or null (no decay)
};

class ChunkForm {
public:
  explicit ChunkForm(KernelBuilder &kernel)
      : kernel(kernel), b(kernel.b), chunk(kernel.schedule.getChunk()),
        operand(kernel.schedule.getOperand()) {}

  void build();

private:
  Value body(Value number, Value state);
  Chunk load(Value number);
  Value normalised(const MappedOperand &source, Value rows);
  std::pair<Value, Value> grams(const Chunk &c);
  Value updates(const Chunk &c, Value gram, Value erased);
  Value decayed(const Chunk &c, Value rows);
  Value nextState(const Chunk &c, Value state, Value updates);
  Value op(Value x) { return b.round(x, operand); }

  KernelBuilder &kernel;
  TileBuilder &b;
  int64_t chunk;
  Type operand;
};

} // namespace

/// rows (f32), normalised if the map says so.
Value ChunkForm::normalised(const MappedOperand &source, Value rows) {
  auto norm = dyn_cast_or_null<dplr::L2NormOp>(source.map);
  if (!norm)
    return rows;
  Value squares = b.sum(b.mul(rows, rows), 1);
  Value eps = b.constantLike(squares, norm.getEps().convertToDouble());
  return b.mul(rows, b.rowFactor(b.rsqrt(b.add(squares, eps)), rows));
}

Chunk ChunkForm::load(Value number) {
  Chunk c;
  Value done = b.mulI(number, b.index(chunk));
  c.first = b.addI(kernel.begin, done);
  c.valid = b.minI(b.index(chunk), b.subI(kernel.length, done));
  Value q = b.toF32(kernel.loadKeyRows("q", c.first, chunk, c.valid));
  Value k = b.toF32(kernel.loadKeyRows("k", c.first, chunk, c.valid));
  c.v = b.toF32(kernel.loadValueRows(c.first, chunk, c.valid));
  Value gate = kernel.loadGate(c.first, chunk, c.valid);
  c.beta = kernel.loadBeta(c.first, chunk, c.valid);
  // Every load stands before the first use of one.
  c.q = normalised(kernel.problem.q, q);
  c.k = normalised(kernel.problem.k, k);
  if (Value decay = kernel.logDecay(gate, chunk, c.valid))
    c.cumulative = tile::CumsumOp::create(b, decay.getType(), decay);
  return c;
}

/// A_kk (strictly lower) and A_qk (lower); A_kk is null without an erase.
std::pair<Value, Value> ChunkForm::grams(const Chunk &c) {
  bool erases = kernel.problem.recurrence.getDelta();
  auto square = b.tileType({chunk, chunk});
  if (kernel.problem.decayRank() == 3) {
    SmallVector<Value> left;
    SmallVector<bool> strict;
    if (erases) {
      left.push_back(c.k);
      strict.push_back(true);
    }
    left.push_back(c.q);
    strict.push_back(false);
    SmallVector<Type> types(left.size(), square);
    auto gram = tile::DecayedGramOp::create(b, types, c.k, c.cumulative, left,
                                            kernel.schedule.getLeaf(),
                                            kernel.schedule.getGram(), strict);
    return {erases ? gram.getResult(0) : Value(), gram.getResults().back()};
  }
  // A decay common to all channels leaves the product: exp2(G_i - G_j).
  Value keys = op(c.k);
  auto product = [&](Value left, bool strict) {
    Value gram = b.dot(left, keys, {}, false, /*transB=*/true);
    if (c.cumulative) {
      Value rows = b.rowFactor(c.cumulative, gram);
      Value cols = b.colFactor(c.cumulative, gram);
      gram = b.mul(gram, b.exp2(b.min(b.sub(rows, cols), 0.0)));
    }
    return b.maskLower(gram, strict);
  };
  Value akk = erases ? product(keys, true) : Value();
  return {akk, product(op(c.q), false)};
}

/// rows times 2^G: what the decayed state at the chunk's start sees.
Value ChunkForm::decayed(const Chunk &c, Value rows) {
  if (!c.cumulative)
    return op(rows);
  Value decay = b.exp2(c.cumulative);
  bool perChannel = kernel.problem.decayRank() == 3;
  return op(b.mul(rows, perChannel ? decay : b.rowFactor(decay, rows)));
}

/// W [C, V]: the rank-one updates of the chunk's tokens, as a product operand.
/// `erased` is what the state before the chunk holds under its keys.
Value ChunkForm::updates(const Chunk &c, Value gram, Value erased) {
  if (!gram)
    return op(c.beta ? b.mul(c.v, b.rowFactor(c.beta, c.v)) : c.v);
  Value lower = gram;
  if (c.beta)
    lower = b.mul(lower, b.rowFactor(c.beta, lower));
  Value inverse = tile::UnitTrilInverseOp::create(b, lower.getType(), lower);
  if (c.beta)
    inverse = b.mul(inverse, b.colFactor(c.beta, inverse));
  return op(b.dot(op(inverse), op(b.sub(c.v, erased))));
}

Value ChunkForm::nextState(const Chunk &c, Value state, Value updates) {
  if (!c.cumulative)
    return b.dot(op(c.k), updates, state, /*transA=*/true);
  Value last = b.row(c.cumulative, chunk - 1);
  bool perChannel = kernel.problem.decayRank() == 3;
  Value remaining, total;
  if (perChannel) {
    remaining = b.exp2(b.sub(b.colFactor(last, c.cumulative), c.cumulative));
    total = b.rowFactor(b.exp2(last), state);
  } else {
    Value toLast = b.sub(b.splat(last, {chunk}), c.cumulative);
    remaining = b.rowFactor(b.exp2(toLast), c.k);
    // Roles pass tiles to each other: a decay for every row of the state.
    int64_t rows = cast<RankedTensorType>(state.getType()).getDimSize(0);
    total = b.rowFactor(tile::hasWarpRoles(kernel.schedule)
                            ? b.exp2(b.splat(last, {rows}))
                            : b.exp2(last),
                        state);
  }
  Value keys = op(b.mul(c.k, remaining));
  return b.dot(keys, updates, b.mul(state, total), /*transA=*/true);
}

Value ChunkForm::body(Value number, Value state) {
  kernel.markCut(number);
  Chunk c = load(number);
  auto [akk, aqk] = grams(c);
  // Both products of the state stand together: they share its fragments.
  Value operandState = op(state);
  Value erased = akk ? b.dot(decayed(c, c.k), operandState) : Value();
  Value out = b.dot(decayed(c, c.q), operandState);
  Value w = updates(c, akk, erased);
  out = b.dot(op(aqk), w, out);
  // The scale waits until here, where no rounding to a narrow type is ahead.
  out = b.mul(out, b.splat(kernel.arg("scale"), {chunk, kernel.valueTile}));
  Value next = nextState(c, state, w);
  kernel.storeOut(out, c.first, c.valid);
  return next;
}

void ChunkForm::build() {
  Value chunks = arith::CeilDivSIOp::create(b, kernel.length, b.index(chunk));
  Value initial = kernel.loadState();
  auto loop = scf::ForOp::create(b, b.index(0), chunks, b.index(1),
                                 ValueRange{initial});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next = body(loop.getInductionVar(), loop.getRegionIterArg(0));
    scf::YieldOp::create(b, next);
  }
  kernel.storeState(loop.getResult(0));
  kernel.finish();
}

void buildChunkForm(KernelBuilder &kernel) { ChunkForm(kernel).build(); }

} // namespace kdac
