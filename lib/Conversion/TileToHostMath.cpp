// Functions of f32 scalars and vectors, written as arithmetic so that no
// kernel needs a math library.
#include "TileToHostEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kdac::host {

static int64_t lanesOf(Value x) {
  auto vector = dyn_cast<VectorType>(x.getType());
  return vector ? vector.getNumElements() : 0;
}

Value Emitter::like(Value shape, double value) {
  return splat(f32(value), lanesOf(shape));
}

Value Emitter::likeBits(Value shape, int64_t value) {
  Value c = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
  return splat(c, lanesOf(shape));
}

Value Emitter::bits(Value x) {
  return arith::BitcastOp::create(b, loc, vectorOf(b.getI32Type(), lanesOf(x)),
                                  x);
}

Value Emitter::asFloat(Value x) {
  return arith::BitcastOp::create(b, loc, vectorOf(b.getF32Type(), lanesOf(x)),
                                  x);
}

Value Emitter::fma(Value a, Value x, Value c) {
  return math::FmaOp::create(b, loc, a, x, c);
}

/// Horner's rule, highest coefficient first.
Value Emitter::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = like(x, coefficients.front());
  for (double c : coefficients.drop_front())
    sum = fma(sum, x, like(x, c));
  return sum;
}

/// 2^x = 2^n 2^f with n = round(x), f in [-1/2, 1/2]. The polynomial is minimax
/// with p(0) = 1 (relative error 2.6e-9), so whole powers are exact. The scale
/// is applied as two factors, each a normal number, so that overflow gives inf
/// and results below the normals round once.
Value Emitter::exp2(Value x) {
  // Rounding by adding 1.5 * 2^23 leaves n in the low bits; comparisons that
  // fail on NaN let it through.
  constexpr double kMagic = 12582912.0;
  auto clamp = [&](arith::CmpFPredicate outside, double limit) {
    Value bound = like(x, limit);
    Value is = arith::CmpFOp::create(b, loc, outside, x, bound);
    x = arith::SelectOp::create(b, loc, is, bound, x);
  };
  clamp(arith::CmpFPredicate::OLT, -160.0);
  clamp(arith::CmpFPredicate::OGT, 130.0);
  Value shifted = arith::AddFOp::create(b, loc, x, like(x, kMagic));
  Value n = arith::SubFOp::create(b, loc, shifted, like(x, kMagic));
  Value f = arith::SubFOp::create(b, loc, x, n);
  Value p = polynomial(f, {1.5594678134392905e-4, 1.340664390190885e-3,
                           9.617692973078134e-3, 5.550310551015165e-2,
                           2.4022652782887216e-1, 6.931472149680272e-1, 1.0});
  Value whole =
      arith::SubIOp::create(b, loc, bits(shifted), bits(like(x, kMagic)));
  Value half = arith::ShRSIOp::create(b, loc, whole, likeBits(x, 1));
  auto power = [&](Value e) {
    Value biased = arith::AddIOp::create(b, loc, e, likeBits(x, 127));
    return asFloat(arith::ShLIOp::create(b, loc, biased, likeBits(x, 23)));
  };
  Value rest = arith::SubIOp::create(b, loc, whole, half);
  p = arith::MulFOp::create(b, loc, p, power(half));
  return arith::MulFOp::create(b, loc, p, power(rest));
}

/// log2 of m 2^e with m in [sqrt(1/2), sqrt(2)): e + 2/ln2 atanh(s), where
/// s = (m - 1) / (m + 1), which is exact near 1. Subnormals are scaled first.
Value Emitter::log2(Value x) {
  using Predicate = arith::CmpFPredicate;
  auto select = [&](Predicate predicate, Value a, Value c, Value yes,
                    Value no) {
    Value is = arith::CmpFOp::create(b, loc, predicate, a, c);
    return Value(arith::SelectOp::create(b, loc, is, yes, no));
  };
  Value tiny = like(x, 0x1p-126), zero = like(x, 0.0);
  Value big = arith::MulFOp::create(b, loc, x, like(x, 0x1p24));
  Value y = select(Predicate::OLT, x, tiny, big, x);
  Value bias = select(Predicate::OLT, x, tiny, like(x, -24.0), zero);
  // Bits of sqrt(1/2), so that the exponent field counts from there.
  constexpr int64_t kRootHalf = 0x3f3504f3;
  Value offset = arith::SubIOp::create(b, loc, bits(y), likeBits(x, kRootHalf));
  Value e = arith::ShRSIOp::create(b, loc, offset, likeBits(x, 23));
  Value low = arith::AndIOp::create(b, loc, offset, likeBits(x, 0x7fffff));
  Value m = asFloat(arith::AddIOp::create(b, loc, low, likeBits(x, kRootHalf)));
  Value s = arith::DivFOp::create(
      b, loc, arith::SubFOp::create(b, loc, m, like(x, 1.0)),
      arith::AddFOp::create(b, loc, m, like(x, 1.0)));
  Value z = arith::MulFOp::create(b, loc, s, s);
  constexpr double kTwoOverLn2 = 2.8853900817779268;
  Value p = polynomial(z, {kTwoOverLn2 / 9, kTwoOverLn2 / 7, kTwoOverLn2 / 5,
                           kTwoOverLn2 / 3, kTwoOverLn2});
  Value whole =
      arith::SIToFPOp::create(b, loc, vectorOf(b.getF32Type(), lanesOf(x)), e);
  Value result = fma(s, p, arith::AddFOp::create(b, loc, whole, bias));
  double inf = std::numeric_limits<double>::infinity();
  result = select(Predicate::OEQ, x, like(x, inf), x, result);
  result = select(Predicate::OEQ, x, zero, like(x, -inf), result);
  Value nan = like(x, std::numeric_limits<double>::quiet_NaN());
  return select(Predicate::UGE, x, zero,
                select(Predicate::UNO, x, x, x, result), nan);
}

Value Emitter::rsqrt(Value x) {
  Value root = math::SqrtOp::create(b, loc, x);
  return arith::DivFOp::create(b, loc, like(x, 1.0), root);
}

/// Rounds to nearest even at `dropped` low mantissa bits; NaN stays NaN.
Value Emitter::roundMantissa(Value x, int64_t dropped) {
  Value raw = bits(x);
  Value last = arith::ShRUIOp::create(b, loc, raw, likeBits(x, dropped));
  last = arith::AndIOp::create(b, loc, last, likeBits(x, 1));
  int64_t half = (int64_t(1) << (dropped - 1)) - 1;
  Value sum = arith::AddIOp::create(b, loc, raw, likeBits(x, half));
  sum = arith::AddIOp::create(b, loc, sum, last);
  sum =
      arith::AndIOp::create(b, loc, sum, likeBits(x, -(int64_t(1) << dropped)));
  Value isNan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  Value quiet = likeBits(x, 0x7fc00000);
  return asFloat(arith::SelectOp::create(b, loc, isNan, quiet, sum));
}

Value Emitter::round(Value x, Type type) {
  if (type.isBF16())
    return roundMantissa(x, 16);
  if (isa<FloatTF32Type>(type))
    return roundMantissa(x, 13);
  if (!type.isF16())
    return x;
  Value half = arith::TruncFOp::create(b, loc, vectorOf(type, lanesOf(x)), x);
  return arith::ExtFOp::create(b, loc, vectorOf(b.getF32Type(), lanesOf(x)),
                               half);
}

/// The value of a float conversion or math function, or null for other ops.
Value Emitter::mathOp(Operation *op, ValueRange operands) {
  return TypeSwitch<Operation *, Value>(op)
      .Case<math::Exp2Op>([&](auto) { return exp2(operands[0]); })
      .Case<math::Log2Op>([&](auto) { return log2(operands[0]); })
      .Case<math::RsqrtOp>([&](auto) { return rsqrt(operands[0]); })
      .Case<arith::ExtFOp>([&](auto) { return operands[0]; })
      .Case<arith::TruncFOp>([&](arith::TruncFOp truncate) {
        return round(operands[0], getElementTypeOrSelf(truncate.getType()));
      })
      .Default([](auto) { return Value(); });
}

} // namespace kdac::host
