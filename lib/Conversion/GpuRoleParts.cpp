// What prepare computes, recognised in the tile program of a kernel whose roles
// are warps: the chunk form of dplr-to-tile, with a decay for every channel,
// one for every head, or none.
#include "GpuRoles.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace kdac {

/// x of x * y or y * x, or null.
static Value factorBeside(Value product, Value y) {
  auto mul = product.getDefiningOp<arith::MulFOp>();
  if (!mul)
    return {};
  if (mul.getRhs() == y)
    return mul.getLhs();
  return mul.getLhs() == y ? mul.getRhs() : Value();
}

Value repeated(Value value, int64_t along) {
  auto broadcast =
      value ? value.getDefiningOp<tile::BroadcastOp>() : tile::BroadcastOp();
  bool isAlong =
      broadcast && static_cast<int64_t>(broadcast.getAlong()) == along;
  return isAlong ? broadcast.getInput() : Value();
}

Value besideBroadcast(Value product, int64_t along, Value &vector) {
  auto mul = product.getDefiningOp<arith::MulFOp>();
  if (!mul)
    return {};
  for (auto [x, y] : {std::pair(mul.getLhs(), mul.getRhs()),
                      std::pair(mul.getRhs(), mul.getLhs())})
    if (Value found = repeated(y, along)) {
      vector = found;
      return x;
    }
  return {};
}

/// y of exp2(y), or null.
static Value exponentOf(Value power) {
  auto op = power ? power.getDefiningOp<math::Exp2Op>() : nullptr;
  return op ? op.getOperand() : Value();
}

/// True if `value` repeats the last row of `decay`.
static bool isLastRow(Value value, tile::CumsumOp decay) {
  if (!value || !decay)
    return false;
  if (auto splat = value.getDefiningOp<tile::SplatOp>())
    value = splat.getScalar();
  else if (Value vector = repeated(value, 1))
    value = vector;
  auto row = value.getDefiningOp<tile::RowOp>();
  auto type = cast<RankedTensorType>(decay.getResult().getType());
  return row && row.getInput() == decay.getResult() &&
         static_cast<int64_t>(row.getIndex()) == type.getDimSize(0) - 1;
}

/// Rows are the same before and after they are widened or rounded.
static Value bare(Value rows) {
  if (auto rounding = rows.getDefiningOp<arith::TruncFOp>())
    rows = rounding.getIn();
  if (auto widened = rows.getDefiningOp<arith::ExtFOp>())
    rows = widened.getIn();
  return rows;
}

/// x of the lower triangle of x, without its diagonal if `strict`, or null.
static Value belowDiagonal(Value value, bool strict) {
  auto select = value.getDefiningOp<arith::SelectOp>();
  auto kept = select ? select.getCondition().getDefiningOp<arith::CmpIOp>()
                     : arith::CmpIOp();
  auto predicate =
      strict ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  if (!kept || kept.getPredicate() != predicate ||
      !matchPattern(select.getFalseValue(), m_AnyZeroFloat()))
    return {};
  auto cols = kept.getLhs().getDefiningOp<tile::IotaOp>();
  auto rows = kept.getRhs().getDefiningOp<tile::IotaOp>();
  bool isTriangle = cols && rows && cols.getDim() == 1 && rows.getDim() == 0;
  return isTriangle ? select.getTrueValue() : Value();
}

/// True if `factor` [C, C] is 2^(G_i - G_j) with exponents limited to 0.
static bool isDecayBetween(Value factor, Value decay) {
  Value exponent = exponentOf(factor);
  auto limited =
      exponent ? exponent.getDefiningOp<arith::MinimumFOp>() : nullptr;
  if (!limited || !matchPattern(limited.getRhs(), m_AnyZeroFloat()))
    return false;
  auto difference = limited.getLhs().getDefiningOp<arith::SubFOp>();
  return difference && repeated(difference.getLhs(), 0) == decay &&
         repeated(difference.getRhs(), 1) == decay;
}

Value RoleLowering::matchGram(Value value, bool strict) {
  Value rows, keys;
  if (auto gram = value.getDefiningOp<tile::DecayedGramOp>()) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (!parts.decay || gram.getDecay() != parts.decay.getResult() ||
        gram.getStrict()[number] != strict)
      return {};
    rows = gram.getLhs()[number];
    keys = gram.getRhs();
  } else {
    Value product = belowDiagonal(value, strict);
    if (!product)
      return {};
    if (parts.decay) {
      auto mul = product.getDefiningOp<arith::MulFOp>();
      if (!mul || !isDecayBetween(mul.getRhs(), parts.decay.getResult()))
        return {};
      product = mul.getLhs();
    }
    auto dot = product.getDefiningOp<tile::DotOp>();
    if (!dot || dot.getAcc() || dot.getTransA() || !dot.getTransB())
      return {};
    rows = at.roundedSource(dot.getA());
    keys = at.roundedSource(dot.getB());
  }
  if (parts.keyRows && bare(parts.keyRows) != bare(keys))
    return {};
  parts.keyRows = keys;
  return rows;
}

/// True if `part` is `rows` times 2^G, or with `toLast` times 2^(G_last - G);
/// the rows themselves where nothing decays.
bool RoleLowering::isDecayed(Value part, Value rows, bool toLast) {
  Value source = at.roundedSource(part);
  if (!parts.decay)
    return bare(source) == bare(rows);
  Value factor = factorBeside(source, rows);
  if (!factor && source.getDefiningOp<arith::MulFOp>()) {
    auto mul = source.getDefiningOp<arith::MulFOp>();
    if (bare(mul.getLhs()) == bare(rows))
      factor = mul.getRhs();
    else if (bare(mul.getRhs()) == bare(rows))
      factor = mul.getLhs();
  }
  if (Value vector = factor ? repeated(factor, 0) : Value())
    factor = vector;
  Value exponent = exponentOf(factor), decay = parts.decay.getResult();
  if (!toLast)
    return exponent == decay;
  auto difference =
      exponent ? exponent.getDefiningOp<arith::SubFOp>() : nullptr;
  return difference && difference.getRhs() == decay &&
         isLastRow(difference.getLhs(), parts.decay);
}

bool RoleLowering::hasUnitKeys() const {
  return !bare(parts.keyRows).getDefiningOp<tile::LoadOp>();
}

arith::SelectOp RoleLowering::choiceOf(tile::DotOp op) {
  auto choice = at.roundedSource(op.getB()).getDefiningOp<arith::SelectOp>();
  bool isScalar = choice && choice.getCondition().getType().isInteger(1);
  return isScalar ? choice : arith::SelectOp();
}

bool RoleLowering::isOfLastChunk(arith::SelectOp choice) {
  auto is = choice.getCondition().getDefiningOp<arith::CmpIOp>();
  auto next = is ? is.getLhs().getDefiningOp<arith::AddIOp>() : nullptr;
  return next && is.getPredicate() == arith::CmpIPredicate::eq &&
         is.getRhs() == chunkLoop.getUpperBound() &&
         next.getLhs() == chunkLoop.getInductionVar() &&
         getConstantIntValue(next.getRhs()) == 1 &&
         matchPattern(choice.getFalseValue(), m_AnyZeroFloat());
}

/// True if `value` is `sum`, or that times other vectors.
static bool isMultipleOf(Value value, tile::ReduceOp sum) {
  while (auto mul = value.getDefiningOp<arith::MulFOp>())
    value = mul.getLhs();
  return sum && value == sum.getResult();
}

LogicalResult RoleLowering::matchPart(Value part) {
  Value source = at.roundedSource(part), vector;
  auto is = [&](Value &which) {
    which = part;
    return success();
  };
  auto type = cast<RankedTensorType>(part.getType());
  if (isLastRow(exponentOf(source), parts.decay))
    return is(parts.total);
  if (part == parts.strengths)
    return success();
  if (isMultipleOf(source, parts.ownSum))
    return is(parts.own);
  Value inverse = parts.inverse ? besideBroadcast(source, 1, vector) : Value();
  if (inverse && isRefined())
    inverse = belowDiagonal(inverse, /*strict=*/true);
  if (inverse && inverse == parts.inverse.getResult() &&
      vector == parts.strengths)
    return is(parts.system);
  if (type.getRank() == 2 && type.getDimSize(1) == chunkRows()) {
    if (Value rows = matchGram(source, /*strict=*/isRefined())) {
      parts.queryRows = rows;
      return is(parts.attention);
    }
  } else if (parts.queryRows) {
    if (isDecayed(part, parts.queryRows, false))
      return is(parts.queries);
    if (isDecayed(part, parts.keyRows, false))
      return is(parts.keys);
    if (isDecayed(part, parts.keyRows, true))
      return is(parts.remaining);
  }
  return part.getDefiningOp()->emitOpError()
         << "is not a value that warps prepare in stage tile-to-nvvm; roles "
            "split and fused take any";
}

} // namespace kdac
