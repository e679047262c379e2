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
  Value own;          ///< [C]: each token's query times its own key, if refined
  Value cumulative;   ///< G: [C, K], [C] or null (no decay)
};

class ChunkForm {
public:
  explicit ChunkForm(KernelBuilder &kernel)
      : kernel(kernel), b(kernel.b), chunk(kernel.schedule.getChunk()),
        operand(kernel.schedule.getOperand()),
        refined(kernel.schedule.getRefined()) {}

  void build();

private:
  Value body(Value turn, Value state);
  Chunk load(Value number);
  Value inverseNorms(const MappedOperand &source, Value rows);
  Value normalised(Value rows, Value norms);
  bool scalesQueries() const;
  std::pair<Value, Value> grams(const Chunk &c);
  Value updates(const Chunk &c, Value gram, Value erased);
  Value decayed(const Chunk &c, Value rows);
  Value addUpdates(Value state, Value keys, Value w);
  Value nextState(const Chunk &c, Value state, Value w);
  Value op(Value x) { return b.round(x, operand); }

  KernelBuilder &kernel;
  TileBuilder &b;
  int64_t chunk;
  Type operand;
  bool refined;
  Value turns;  ///< how many chunks this program has
  Value isLast; ///< i1: this is the last one
};

} // namespace

/// [C]: what normalises rows (f32), or null if no map says so.
Value ChunkForm::inverseNorms(const MappedOperand &source, Value rows) {
  auto norm = dyn_cast_or_null<dplr::L2NormOp>(source.map);
  if (!norm)
    return {};
  Value squares = b.sum(b.mul(rows, rows), 1);
  Value eps = b.constantLike(squares, norm.getEps().convertToDouble());
  return b.rsqrt(b.add(squares, eps));
}

/// Roles as warps: what normalises a query scales it as well, which is a number
/// for a row of prepare and not one for every element of the chain's output.
bool ChunkForm::scalesQueries() const {
  return tile::hasWarpRoles(kernel.schedule) &&
         isa_and_nonnull<dplr::L2NormOp>(kernel.problem.q.map);
}

Value ChunkForm::normalised(Value rows, Value norms) {
  return norms ? b.mul(rows, b.rowFactor(norms, rows)) : rows;
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
  Value qNorms = inverseNorms(kernel.problem.q, q);
  if (scalesQueries())
    qNorms = b.mul(qNorms, b.splat(kernel.arg("scale"), {chunk}));
  c.q = normalised(q, qNorms);
  Value kNorms = inverseNorms(kernel.problem.k, k);
  c.k = normalised(k, kNorms);
  if (refined) {
    c.own = b.sum(b.mul(q, k), 1);
    for (Value norms : {qNorms, kNorms})
      c.own = norms ? b.mul(c.own, norms) : c.own;
  }
  if (Value decay = kernel.logDecay(gate, chunk, c.valid))
    c.cumulative = tile::CumsumOp::create(b, decay.getType(), decay);
  return c;
}

/// A_kk (strictly lower) and A_qk (lower, if refined without its diagonal);
/// A_kk is null without an erase.
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
    strict.push_back(refined);
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
  return {akk, product(op(c.q), refined)};
}

/// rows times 2^G: what the decayed state at the chunk's start sees.
Value ChunkForm::decayed(const Chunk &c, Value rows) {
  if (!c.cumulative)
    return op(rows);
  Value decay = b.exp2(c.cumulative);
  bool perChannel = kernel.problem.decayRank() == 3;
  return op(b.mul(rows, perChannel ? decay : b.rowFactor(decay, rows)));
}

/// W [C, V]: the rank-one updates of the chunk's tokens, in f32. `erased` is
/// what the state before the chunk holds under its keys. The system's diagonal
/// is the write strength: refined, it is applied without a rounding.
Value ChunkForm::updates(const Chunk &c, Value gram, Value erased) {
  if (!gram)
    return c.beta ? b.mul(c.v, b.rowFactor(c.beta, c.v)) : c.v;
  Value lower = gram;
  if (c.beta)
    lower = b.mul(lower, b.rowFactor(c.beta, lower));
  Value inverse = tile::UnitTrilInverseOp::create(b, lower.getType(), lower);
  if (refined)
    inverse = b.maskLower(inverse, /*strict=*/true);
  if (c.beta)
    inverse = b.mul(inverse, b.colFactor(c.beta, inverse));
  Value system = op(inverse), u = b.sub(c.v, erased), rounded = op(u), own;
  if (refined)
    own = c.beta ? b.mul(u, b.rowFactor(c.beta, u)) : u;
  return b.dot(system, rounded, own);
}

/// state + keysᵀ W. Refined, the last chunk also adds what rounding leaves out
/// of W: nearly all of a final state comes from there where tokens decay.
Value ChunkForm::addUpdates(Value state, Value keys, Value w) {
  Value rounded = op(w);
  // Without an erase W is v, as loaded.
  if (refined && kernel.problem.recurrence.getDelta()) {
    Value rest = b.sub(w, b.toF32(rounded));
    rest = b.select(isLast, rest, b.constantLike(rest, 0.0));
    state = b.dot(keys, op(rest), state, /*transA=*/true);
  }
  return b.dot(keys, rounded, state, /*transA=*/true);
}

Value ChunkForm::nextState(const Chunk &c, Value state, Value w) {
  if (!c.cumulative)
    return addUpdates(state, op(c.k), w);
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
  return addUpdates(b.mul(state, total), keys, w);
}

Value ChunkForm::body(Value turn, Value state) {
  Value number = kernel.enterTurn(turn);
  kernel.markCut(number);
  if (refined)
    isLast = b.isEqual(b.addI(turn, b.index(1)), turns);
  Chunk c = load(number);
  auto [akk, aqk] = grams(c);
  // Both products of the state stand together: they share its fragments.
  Value operandState = op(state);
  Value erased = akk ? b.dot(decayed(c, c.k), operandState) : Value();
  Value queries = decayed(c, c.q), out;
  bool ownFirst = refined && akk;
  if (!ownFirst)
    out = b.dot(queries, operandState);
  Value w = updates(c, akk, erased), rounded = op(w);
  // The attention's diagonal: refined, it is applied without a rounding. Where
  // W depends on no state it comes last, or it would not be the chain's.
  if (ownFirst)
    out = b.dot(queries, operandState, b.mul(w, b.rowFactor(c.own, w)));
  out = b.dot(op(aqk), rounded, out);
  if (refined && !akk)
    out = b.fma(w, b.rowFactor(c.own, w), out);
  // The scale waits until here, where no rounding to a narrow type is ahead.
  if (!scalesQueries())
    out = b.mul(out, b.splat(kernel.arg("scale"), {chunk, kernel.valueTile}));
  Value next = nextState(c, state, w);
  kernel.storeOut(out, c.first, c.valid);
  return next;
}

void ChunkForm::build() {
  turns = kernel.turnsOf(
      arith::CeilDivSIOp::create(b, kernel.length, b.index(chunk)));
  Value initial = kernel.loadState();
  auto heads = std::pair(kernel.keyHead, kernel.valueHead);
  Value last = b.carry(turns, initial, [&](Value turn, ValueRange state) {
    return SmallVector<Value>{body(turn, state[0])};
  })[0];
  std::tie(kernel.keyHead, kernel.valueHead) = heads;
  kernel.storeState(last);
  kernel.finish();
}

void buildChunkForm(KernelBuilder &kernel) { ChunkForm(kernel).build(); }

} // namespace kdac
