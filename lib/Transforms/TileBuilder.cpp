#include "TileBuilder.h"

using namespace mlir;

namespace kdac {

static constexpr double kLog2E = 1.4426950408889634;

RankedTensorType TileBuilder::tileType(ArrayRef<int64_t> shape, Type element) {
  return RankedTensorType::get(shape, element ? element : getF32Type());
}

Value TileBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(*this, value);
}
Value TileBuilder::addI(Value a, Value b) {
  return createOrFold<arith::AddIOp>(a, b);
}
Value TileBuilder::subI(Value a, Value b) {
  return createOrFold<arith::SubIOp>(a, b);
}
Value TileBuilder::mulI(Value a, Value b) {
  return createOrFold<arith::MulIOp>(a, b);
}
Value TileBuilder::divI(Value a, Value b) {
  return createOrFold<arith::DivUIOp>(a, b);
}
Value TileBuilder::remI(Value a, Value b) {
  return createOrFold<arith::RemUIOp>(a, b);
}
Value TileBuilder::minI(Value a, Value b) {
  return createOrFold<arith::MinSIOp>(a, b);
}
Value TileBuilder::maxI(Value a, Value b) {
  return createOrFold<arith::MaxSIOp>(a, b);
}

Value TileBuilder::ceilDiv(Value a, int64_t b) {
  return divI(addI(a, index(b - 1)), index(b));
}

Value TileBuilder::isEqual(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, a, b);
}
Value TileBuilder::isLess(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::slt, a, b);
}
Value TileBuilder::isWithin(Value x, Value end) {
  Value low =
      arith::CmpIOp::create(*this, arith::CmpIPredicate::sge, x, index(0));
  return both(low, isLess(x, end));
}
Value TileBuilder::both(Value a, Value b) {
  return arith::AndIOp::create(*this, a, b);
}
Value TileBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(*this, condition, a, b);
}

Value TileBuilder::f32(double value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(value));
}

Value TileBuilder::constantLike(Value like, double value) {
  FloatAttr scalar = getF32FloatAttr(static_cast<float>(value));
  if (auto type = dyn_cast<RankedTensorType>(like.getType()))
    return arith::ConstantOp::create(
        *this,
        DenseElementsAttr::get(tileType(type.getShape()), scalar.getValue()));
  return arith::ConstantOp::create(*this, scalar);
}

Value TileBuilder::add(Value a, Value b) {
  return arith::AddFOp::create(*this, a, b);
}
Value TileBuilder::sub(Value a, Value b) {
  return arith::SubFOp::create(*this, a, b);
}
Value TileBuilder::mul(Value a, Value b) {
  return arith::MulFOp::create(*this, a, b);
}
Value TileBuilder::mul(Value a, double b) { return mul(a, constantLike(a, b)); }
Value TileBuilder::fma(Value a, Value b, Value c) {
  return math::FmaOp::create(*this, a, b, c);
}
Value TileBuilder::max(Value a, double b) {
  return arith::MaximumFOp::create(*this, a, constantLike(a, b));
}
Value TileBuilder::min(Value a, double b) {
  return arith::MinimumFOp::create(*this, a, constantLike(a, b));
}
Value TileBuilder::exp2(Value x) { return math::Exp2Op::create(*this, x); }
Value TileBuilder::rsqrt(Value x) { return math::RsqrtOp::create(*this, x); }

Value TileBuilder::sigmoid(Value x) {
  // exp2 of a large argument is inf, whose reciprocal is the right 0.
  Value one = constantLike(x, 1.0);
  return arith::DivFOp::create(*this, one, add(one, exp2(mul(x, -kLog2E))));
}

Value TileBuilder::tanh(Value x) {
  // The series' next term is 62/2835 x^9: 2e-10 of x where |x| < 0.1.
  static constexpr double series[] = {-17.0 / 315, 2.0 / 15, -1.0 / 3, 1.0};
  Value square = mul(x, x), sum = constantLike(x, series[0]);
  for (double term : ArrayRef(series).drop_front())
    sum = add(mul(sum, square), constantLike(x, term));
  Value one = constantLike(x, 1.0), two = constantLike(x, 2.0);
  Value far = sub(one, arith::DivFOp::create(
                           *this, two, add(one, exp2(mul(x, 2 * kLog2E)))));
  Value isNear = arith::CmpFOp::create(*this, arith::CmpFPredicate::OLT, square,
                                       constantLike(x, 0.01));
  return select(isNear, mul(x, sum), far);
}

Value TileBuilder::softplus(Value x, bool brief) {
  // max(x, 0) + log1p(t), t = exp(-|x|) in (0, 1]. log1p(t) = 2 atanh(s) with
  // s = t / (2 + t) <= 1/3: seven terms leave 1.5e-8, below f32 rounding, and
  // the small tail of a strongly negative x keeps its relative accuracy. Three
  // minimax coefficients leave 7.2e-6.
  static constexpr double series[] = {1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7,
                                      1.0 / 5,  1.0 / 3,  1.0};
  static constexpr double minimax[] = {0.22648516, 0.33218982, 1.0000072};
  ArrayRef<double> terms = brief ? ArrayRef(minimax) : ArrayRef(series);
  Value t = exp2(mul(math::AbsFOp::create(*this, x), -kLog2E));
  Value s = arith::DivFOp::create(*this, t, add(t, constantLike(t, 2.0)));
  Value s2 = mul(s, s);
  Value sum = constantLike(x, terms.front());
  for (double term : terms.drop_front())
    sum = add(mul(sum, s2), constantLike(x, term));
  return add(max(x, 0.0), mul(mul(s, 2.0), sum));
}

Value TileBuilder::filled(ArrayRef<int64_t> shape, float value) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(tileType(shape), value));
}

Value TileBuilder::toF32(Value x) {
  auto type = cast<RankedTensorType>(x.getType());
  if (type.getElementType().isF32())
    return x;
  return arith::ExtFOp::create(*this, tileType(type.getShape()), x);
}

Value TileBuilder::round(Value x, Type element) {
  auto type = cast<RankedTensorType>(x.getType());
  if (element.isF32())
    return x;
  return arith::TruncFOp::create(*this, tileType(type.getShape(), element), x);
}

Value TileBuilder::splat(Value scalar, ArrayRef<int64_t> shape) {
  return tile::SplatOp::create(*this, tileType(shape, scalar.getType()),
                               scalar);
}

Value TileBuilder::rowFactor(Value x, Value like) {
  auto shape = cast<RankedTensorType>(like.getType()).getShape();
  if (!isa<RankedTensorType>(x.getType()))
    return splat(x, shape);
  return tile::BroadcastOp::create(*this, tileType(shape), x, 0);
}

Value TileBuilder::colFactor(Value x, Value like) {
  auto shape = cast<RankedTensorType>(like.getType()).getShape();
  return tile::BroadcastOp::create(*this, tileType(shape), x, 1);
}

Value TileBuilder::once(Value x) {
  return tile::OnceOp::create(*this, x.getType(), x);
}

Value TileBuilder::row(Value x, int64_t index) {
  auto type = cast<RankedTensorType>(x.getType());
  Type result = getF32Type();
  if (type.getRank() == 2)
    result = tileType(type.getShape().drop_front());
  return tile::RowOp::create(*this, result, x, index);
}

Value TileBuilder::window(Value x, int64_t first, int64_t rows) {
  auto type = cast<RankedTensorType>(x.getType());
  return tile::WindowOp::create(*this, tileType({rows, type.getDimSize(1)}), x,
                                first);
}

static Value reduce(TileBuilder &b, Value x, int64_t along, bool greatest) {
  auto type = cast<RankedTensorType>(x.getType());
  Type result = b.getF32Type();
  if (type.getRank() == 2)
    result = b.tileType({type.getDimSize(1 - along)});
  return tile::ReduceOp::create(b, result, x, along, greatest);
}

Value TileBuilder::sum(Value x, int64_t along) {
  return reduce(*this, x, along, false);
}

Value TileBuilder::greatest(Value x, int64_t along) {
  return reduce(*this, x, along, true);
}

Value TileBuilder::maskRows(Value x, Value rows) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Value numbers =
      tile::IotaOp::create(*this, tileType(shape, getIndexType()), 0);
  Value valid = isLess(numbers, splat(rows, shape));
  return select(valid, x, constantLike(x, 0.0));
}

Value TileBuilder::maskLower(Value x, bool strict) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  auto type = tileType(shape, getIndexType());
  Value rows = tile::IotaOp::create(*this, type, 0);
  Value cols = tile::IotaOp::create(*this, type, 1);
  auto predicate =
      strict ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  Value kept = arith::CmpIOp::create(*this, predicate, cols, rows);
  return select(kept, x, constantLike(x, 0.0));
}

Value TileBuilder::dot(Value a, Value b, Value acc, bool transA, bool transB) {
  auto aType = cast<RankedTensorType>(a.getType());
  auto bType = cast<RankedTensorType>(b.getType());
  auto type = tileType({aType.getDimSize(transA), bType.getDimSize(!transB)});
  return tile::DotOp::create(*this, type, a, b, acc, transA, transB);
}

Value TileBuilder::guarded(Value ref, Value condition) {
  return tile::GuardOp::create(*this, ref.getType(), ref, condition);
}

Value TileBuilder::loadIndex(Value ref, Value at, Value otherwise) {
  return tile::LoadScalarOp::create(*this, getIndexType(), ref, at, otherwise);
}

Value TileBuilder::loadF32(Value ref, Value at) {
  return tile::LoadScalarOp::create(*this, getF32Type(), ref, at, f32(0));
}

void TileBuilder::forEach(Value first, Value end, Value step,
                          llvm::function_ref<void(Value number)> body) {
  auto loop = scf::ForOp::create(*this, first, end, step);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

ValueRange TileBuilder::carry(Value first, Value end, Value step,
                              ValueRange carried, LoopBody body) {
  auto loop = scf::ForOp::create(*this, first, end, step, carried);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(*this,
                       body(loop.getInductionVar(), loop.getRegionIterArgs()));
  return loop.getResults();
}

ValueRange TileBuilder::carry(Value end, ValueRange carried, LoopBody body) {
  Value zero = index(0);
  return carry(zero, end, index(1), carried, body);
}

} // namespace kdac
