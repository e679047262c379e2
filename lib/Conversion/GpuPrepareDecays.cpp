// Log-decays for every channel where something bounds them: from logits to the
// pairs of f16 that tensor cores sum.
#include "GpuPrepare.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace kdac {

/// Log-decays are summed by tensor cores as f16: scaled by 2^12, or where
/// nothing bounds them, down to -300, by 2^7.
static constexpr double kBoundedScale = 4096.0, kUnboundedScale = 128.0;

/// Instead of the inverse of 0: nothing from 1 to infinity times this has a
/// reciprocal other than 0.
static constexpr double kMasked = -1e38;

double ChunkPreparer::sumScale() const {
  return isBounded() ? kBoundedScale : kUnboundedScale;
}

//===-- What makes them
//-----------------------------------------------------------===//

/// factor / (1 + 2^(scales (x + bias))), and 0 in the rows where `mask`, 1 or 0
/// for a row, is 0.
struct BoundedGate {
  double factor = 1;
  Value mask; ///< or null
  SmallVector<Value> scales;
  Value x, bias;
};

/// The number that all elements are.
static std::optional<double> constantOf(Value value) {
  SplatElementsAttr splat;
  if (!matchPattern(value, m_Constant(&splat)))
    return {};
  return splat.getSplatValue<APFloat>().convertToDouble();
}

static SmallVector<Value> factorsOf(Value product) {
  SmallVector<Value> pending = {product}, factors;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (auto mul = value.getDefiningOp<arith::MulFOp>())
      pending.append({mul.getLhs(), mul.getRhs()});
    else
      factors.push_back(value);
  }
  return factors;
}

/// 1 or 0 for a row, repeated along its columns.
static bool isRowMask(Value value) {
  Value rows = repeated(value, 0);
  auto select =
      rows ? rows.getDefiningOp<arith::SelectOp>() : arith::SelectOp();
  return select && constantOf(select.getTrueValue()) == 1.0 &&
         constantOf(select.getFalseValue()) == 0.0;
}

static std::optional<BoundedGate> matchBoundedGate(Value decay) {
  BoundedGate gate;
  arith::DivFOp quotient;
  for (Value factor : factorsOf(decay)) {
    auto division = factor.getDefiningOp<arith::DivFOp>();
    if (auto constant = constantOf(factor))
      gate.factor *= *constant;
    else if (isRowMask(factor) && !gate.mask)
      gate.mask = factor;
    else if (division && !quotient && constantOf(division.getLhs()) == 1.0)
      quotient = division;
    else
      return {};
  }
  auto sum = quotient ? quotient.getRhs().getDefiningOp<arith::AddFOp>()
                      : arith::AddFOp();
  auto power =
      sum ? sum.getLhs().getDefiningOp<math::Exp2Op>() : math::Exp2Op();
  if (!power || constantOf(sum.getRhs()) != 1.0)
    return {};
  for (Value factor : factorsOf(power.getOperand())) {
    auto logits = factor.getDefiningOp<arith::AddFOp>();
    if (constantOf(factor) || factor.getDefiningOp<tile::SplatOp>()) {
      gate.scales.push_back(factor);
    } else if (logits && !gate.x && repeated(logits.getRhs(), 1)) {
      gate.x = logits.getLhs();
      gate.bias = logits.getRhs();
    } else {
      return {};
    }
  }
  return gate.x ? std::optional(gate) : std::nullopt;
}

/// `group` of `input`, times sumScale(). A bounded gate's takes two fused
/// multiply-adds beside its exponential and its reciprocal: what multiplies the
/// sum of logit and bias multiplies both, and what multiplies the sigmoid
/// divides both terms of its denominator.
ChunkPreparer::Values ChunkPreparer::scaledDecays(Value input,
                                                  const Group &group) {
  Values elements;
  std::optional<BoundedGate> gate = matchBoundedGate(input);
  if (!gate) {
    for (Value decay : at.evaluate(input, group))
      elements.push_back(b.mulF(decay, b.f32(sumScale())));
    return elements;
  }
  Value scale = b.f32(1), inverse = b.f32(1 / (sumScale() * gate->factor));
  for (Value factor : gate->scales)
    scale = b.mulF(scale, at.evaluate(factor, group)[0]);
  Values x = at.evaluate(gate->x, group), bias = at.evaluate(gate->bias, group);
  Values mask(group.width);
  if (gate->mask)
    mask = at.evaluate(gate->mask, group);
  for (int64_t i = 0; i < group.width; ++i) {
    Value own = inverse;
    if (mask[i]) {
      Value isThere = arith::CmpFOp::create(b, arith::CmpFPredicate::ONE,
                                            mask[i], b.f32(0));
      own = roles.select(isThere, inverse, b.f32(kMasked));
    }
    Value power = b.exp2(b.fma(x[i], scale, b.mulF(bias[i], scale)));
    elements.push_back(b.reciprocal(b.fma(power, own, own)));
  }
  return elements;
}

//===-- Where they are
//------------------------------------------------------------===//

/// Whether they replace their logits in shared memory before the slices, while
/// norms are summed: exponentials and reciprocals beside tensor cores.
bool ChunkPreparer::storesDecaysAhead() const {
  return isBounded() && hasChannels() && !parts.wideLogits &&
         !parts.norms.empty();
}

/// Whether a slice finds them in shared memory.
bool ChunkPreparer::findsDecays() const {
  return parts.wideLogits || storesDecaysAhead();
}

/// Whether it also has registers to read the next one's with.
bool ChunkPreparer::readsDecaysAhead() const {
  return findsDecays() && isBounded() && !scalesRows();
}

/// The rows in shared memory that they are made of, and then replace.
Value ChunkPreparer::decayRows() const {
  return parts.wideLogits ? parts.wideLogits.getResult()
                          : rowsBehind(parts.decay.getInput()).front();
}

ChunkPreparer::Values ChunkPreparer::storedDecays(Value slice) {
  return fragment(decayRows(), sliceAt(slice, ownRows), /*transposed=*/true);
}

/// Makes and stores those of the present slice. `between` is called after each
/// of its four registers.
void ChunkPreparer::storeDecaysOfSlice(
    llvm::function_ref<void(int64_t)> between) {
  Values words = madeDecays(parts.decay.getInput(), between);
  b.stmatrix(roles.pointer(own), words, /*transposed=*/true,
             at.place(decayRows()).getOffset());
}

/// The slice of `input`, scaled, as fragments of pairs of tokens.
ChunkPreparer::Values
ChunkPreparer::madeDecays(Value input,
                          llvm::function_ref<void(int64_t)> between) {
  readLoads(input, /*tokens=*/true);
  Values words;
  for (int64_t part = 0; part < 4; ++part) {
    Values pair = scaledDecays(input, tokenPairs(part));
    words.push_back(word(pair[0], pair[1], f16()));
    between(part);
  }
  return words;
}

/// The same of the present slice, from where they are.
ChunkPreparer::Values ChunkPreparer::decays(Value input) {
  if (findsDecays())
    return fragment(decayRows(), own, /*transposed=*/true);
  return madeDecays(input, [](int64_t) {});
}

/// Tensor cores sum them: `sums` [16, 16] times the tokens, in fragment order.
ChunkPreparer::Values ChunkPreparer::sumDecays(ArrayRef<Value> sums,
                                               ArrayRef<Value> words) {
  Values exponents(8, b.f32(0));
  auto all = MutableArrayRef<Value>(exponents);
  multiply(all.slice(0, 4), sums, words[0], words[1], f16());
  multiply(all.slice(4, 4), sums, words[2], words[3], f16());
  return exponents;
}

} // namespace kdac
