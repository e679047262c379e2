#include "kdac/Reference/Tolerance.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

// u = half an ulp at 1: bf16 2^-8, f16 and tf32 2^-11, f32 2^-24. One rounding
// of numbers with evenly spread significands costs 0.42 u in relative RMS.

const std::vector<RoundingRow> &roundingTable() {
  static const std::vector<RoundingRow> table = {
      {DType::BF16, 1.7e-3, "0.42 * 2^-8 = 1.65e-3"},
      {DType::F16, 2.2e-4, "0.42 * 2^-11 = 2.06e-4; subnormals add a little"},
      {DType::F32, 3e-8, "0.42 * 2^-24 = 2.5e-8"},
  };
  return table;
}

const std::vector<ArithmeticRow> &arithmeticTable() {
  using T = TargetKind;
  using F = Form;
  using D = Difficulty;
  using P = Products;
  constexpr auto any = std::nullopt;
  // clang-format off
  static const std::vector<ArithmeticRow> table = {
    // Step form: f32 throughout, one rounding a token and element of the state.
    {T::Host, F::Step, D::Correlated, any, any, 4e-6, 4e-6,
     "model 1.7e-6: identical keys without much decay add up or cancel"},
    {T::Host, F::Step, any, any, any, 2e-6, 2e-6,
     "sqrt(T / 3) * 2^-24 = 2.2e-6 for T = 4096 without decay; model with decay 2e-7"},
    {T::Gpu, F::Step, any, any, any, 1e-5, 1e-5,
     "as on the host, plus exp2 and rsqrt of 2^-22 a token"},

    // Rows: f32, a few operations an element; a sum that is kept rounds once more.
    {T::Host, F::Rows, any, any, any, 5e-7, 0.0,
     "exp2 of x log2 e, |x| < 4: half an ulp of 2.4e-7 times ln 2; a handful of roundings of 2.5e-8; "
     "1 - 2 / (1 + e) of tanh(0.1 .. 0.5) loses 6e-8 of 0.3 or so"},
    {T::Gpu, F::Rows, any, any, any, 1.5e-6, 0.0,
     "as on the host, plus exp2, reciprocal and rsqrt of 2^-22, three of them in situ, and 2^-22 of tanh = 0.3"},

    // Attention: errors are relative to the weights' spread, as out's are. Scores
    // of up to 10 nats lose half an ulp of each term and of each sum.
    {T::Host, F::Attention, any, any, any, 3e-6, 0.0,
     "score 10 (576 terms): 10 * 2^-24 * sqrt(24) = 3e-6 at worst, typically a fifth; exp2 2.4e-7, sums 2e-7"},
    {T::Gpu, F::Attention, any, P::F32, any, 4e-6, 0.0,
     "as on the host, plus exp2 and the total's quotient of 2^-22 each"},
    {T::Gpu, F::Attention, any, P::TF32, any, 2.5e-4, 0.0,
     "weights rounded to f16: 0.42 * 2^-11 = 2.06e-4 each, in the spread that out has; f32 as on the host"},
    {T::Gpu, F::Attention, any, any, any, 1.8e-3, 0.0,
     "weights rounded to bf16: 0.42 * 2^-8 = 1.65e-3 each, in the spread that out has; f32 as on the host"},

    // The same for prompts. Averages in f32 have the same errors, their
    // logarithms less.
    {T::Host, F::Prompt, any, any, any, 6e-6, 6e-6,
     "score 40 (192 terms): 40 * 2^-24 * sqrt(12) = 8e-6 at worst, typically a fifth; exp2 2.4e-7, sums 2e-7"},
    {T::Gpu, F::Prompt, any, P::F32, any, 7e-6, 7e-6,
     "as on the host, plus exp2, log2 and the total's quotient of 2^-22 each"},
    {T::Gpu, F::Prompt, any, P::TF32, any, 2.5e-4, 2.5e-4,
     "weights rounded to f16: 0.42 * 2^-11 = 2.06e-4 each, in the spread that out has; f32 as on the host"},
    {T::Gpu, F::Prompt, any, any, any, 1.8e-3, 1.8e-3,
     "weights rounded to bf16: 0.42 * 2^-8 = 1.65e-3 each, in the spread that out has; f32 as on the host"},

    // Products of exact operands: sums in f32 of terms with random signs.
    {T::Host, F::Matmul, any, any, any, 3e-6, 3e-6,
     "sqrt(256) * 2^-24 = 1e-6, and a gated product's as of rows"},
    {T::Gpu, F::Matmul, any, any, any, 1e-5, 1e-5,
     "tensor cores cut sums off: 256 / 16 of them, 2^-22 each, and a gated product's as of rows"},

    // Chunk form on the host: f32 products. A cumulative base-2 log-decay G loses
    // half an ulp of |G|, a relative error in exp2(G_i - G_j).
    {T::Host, F::Chunk, D::Extreme, any, any, 1e-4, 1e-4,
     "|G| <= 64 * 128 after clamping: half an ulp is 2^-12, times ln 2 = 1.7e-4 at worst"},
    {T::Host, F::Chunk, D::Correlated, any, Beta::TwoSigmoid, 1e-5, 1e-5,
     "model 3.8e-6: the row below times |T| = beta / (1 - |1 - beta|) = 7 at beta = 1.76"},
    {T::Host, F::Chunk, D::Correlated, any, any, 4e-6, 4e-6,
     "model 9e-7; substitution over 64 rows keeps 64 * 2^-24 = 4e-6"},
    {T::Host, F::Chunk, any, any, any, 1e-5, 1e-5,
     "model 2.5e-6: |G| <= 512, half an ulp 1.5e-5, and most factors have less"},

    // Chunk form on GPUs: operands of products are rounded (design.md 5). "Model"
    // is test/Numerics/ModelKernel with the same operand type.
    {T::Gpu, F::Chunk, D::Undecayed, P::BF16, Beta::TwoSigmoid, 9.0e-3, 9.0e-3,
     "model 8.0e-3: eigenvalues near -1 keep errors in the state"},
    {T::Gpu, F::Chunk, D::Undecayed, P::BF16, any, 5.5e-3, 5.3e-3,
     "model 4.8e-3 and 4.5e-3: nothing forgets an error"},
    {T::Gpu, F::Chunk, D::Correlated, P::BF16, Beta::TwoSigmoid, 5.5e-2, 6.0e-2,
     "proposed: model 3.7e-2 and 4.1e-2, times 1.5"},
    {T::Gpu, F::Chunk, D::Correlated, P::BF16, any, 2.1e-2, 3.3e-2,
     "proposed: model 1.4e-2 and 2.2e-2, times 1.5; FLA 2.1e-2 and 3.0e-2 (kda-operator.md 3.5)"},
    {T::Gpu, F::Chunk, any, P::BF16, any, 4.3e-3, 4.2e-3,
     "design: out 4.6e-3 = hypot(1.7e-3, 4.3e-3), state 4.2e-3; model 4.1e-3 and 3.1e-3"},
    // Refined: the model without its diagonals' roundings, which are most of a
    // chunk where tokens decay, in chunks of 32; out without its own rounding.
    {T::Gpu, F::Chunk, D::Undecayed, P::Refined, Beta::TwoSigmoid, 5.9e-3, 6.0e-3,
     "model 5.1e-3 and 5.2e-3, times 1.15 as for bf16"},
    {T::Gpu, F::Chunk, D::Undecayed, P::Refined, any, 4.3e-3, 4.0e-3,
     "model 3.7e-3 and 3.4e-3, times 1.15 as for bf16: W's rounding stays but in the last chunk"},
    {T::Gpu, F::Chunk, D::Correlated, P::Refined, Beta::TwoSigmoid, 5.5e-2, 6.0e-2,
     "the bf16 row: what alike keys do is far from any diagonal"},
    {T::Gpu, F::Chunk, D::Correlated, P::Refined, any, 2.1e-2, 3.3e-2,
     "the bf16 row, likewise"},
    {T::Gpu, F::Chunk, any, P::Refined, any, 2.8e-3, 2.2e-3,
     "design: out 3.3e-3 = hypot(1.7e-3, 2.8e-3), state 2.2e-3; model 2.6e-3 and 2.2e-3, random 1.9e-3 and 1.8e-3"},
    {T::Gpu, F::Chunk, D::Undecayed, P::TF32, Beta::TwoSigmoid, 1.15e-3, 1.15e-3,
     "3 more bits: the bf16 row / 8"},
    {T::Gpu, F::Chunk, D::Undecayed, P::TF32, any, 6.9e-4, 6.7e-4,
     "the bf16 row / 8"},
    {T::Gpu, F::Chunk, D::Correlated, P::TF32, Beta::TwoSigmoid, 6.9e-3, 7.5e-3,
     "the bf16 row / 8"},
    {T::Gpu, F::Chunk, D::Correlated, P::TF32, any, 2.7e-3, 4.2e-3,
     "the bf16 row / 8"},
    {T::Gpu, F::Chunk, any, P::TF32, any, 6.0e-4, 6.0e-4,
     "the bf16 row / 8, and cumulative log-decays as on the host"},
  };
  // clang-format on
  return table;
}

const std::vector<KeptRow> &keptTable() {
  using D = Difficulty;
  constexpr auto any = std::nullopt;
  constexpr auto conv = KeptRow::Convolution;
  // clang-format off
  static const std::vector<KeptRow> table = {
    {conv, D::Undecayed, Beta::TwoSigmoid, 3.2, 3.3,
     "host 2.1 and 2.2, times 1.5: eigenvalues near -1 keep errors in the state"},
    {conv, D::Undecayed, any, 2.5, 2.5, "host 1.6 and 1.7, times 1.5: nothing forgets an error"},
    {conv, D::Correlated, any, 2.5, 2.5, "host 1.3 and 1.5, times 1.7: keys still alike after their taps"},
    {conv, any, any, 2.0, 1.75,
     "q, v, and k in the write and in the erase: sqrt(4); without q sqrt(3). Host 1.5 and 1.55"},
    {KeptRow::Norm, any, any, 1.0, 0.0, "the output before its norm, whose relative errors a norm passes on"},
  };
  // clang-format on
  return table;
}

namespace {

bool isGpu(const Variant &v) {
  const Target *target = findTarget(v.target);
  return target && target->kind == TargetKind::Gpu;
}

bool matches(const ArithmeticRow &row, const Variant &v,
             Difficulty difficulty) {
  return row.target == (isGpu(v) ? TargetKind::Gpu : TargetKind::Host) &&
         row.form == v.form &&
         row.difficulty.value_or(difficulty) == difficulty &&
         row.products.value_or(productsOf(v)) == productsOf(v) &&
         row.beta.value_or(*v.beta) == *v.beta;
}

double roundingOf(DType dtype) {
  for (const RoundingRow &row : roundingTable())
    if (row.dtype == dtype)
      return row.error;
  return 0.0;
}

} // namespace

Products productsOf(const Variant &variant) {
  Form form = variant.form;
  if (isGpu(variant) &&
      (form == Form::Attention || form == Form::Prompt || form == Form::Matmul))
    return variant.dtype == DType::F32    ? Products::F32
           : variant.dtype == DType::BF16 ? Products::BF16
                                          : Products::TF32;
  if (!isGpu(variant) || variant.form != Form::Chunk)
    return Products::F32;
  if (variant.precision == Precision::High && hasRefinedSchedule(variant))
    return Products::Refined;
  bool coarse = variant.precision == Precision::Default
                    ? variant.dtype == DType::BF16
                    : variant.precision == Precision::Fast;
  return coarse ? Products::BF16 : Products::TF32;
}

bool hasRefinedSchedule(const Variant &v) {
  const Target *target = findTarget(v.target);
  const Recurrence &row = v.row();
  bool erases = row.erase == Erase::Delta;
  return target && target->hasWarpgroupProducts && v.form == Form::Chunk &&
         v.dtype == DType::BF16 && row.erase != Erase::Pair &&
         erases == (*v.beta != Beta::None) &&
         (v.keyDim == 64 || v.keyDim == 128) && v.valueDim % 64 == 0;
}

/// The errors of one part in roundings; none where the form rounds nothing.
static KeptRow keptOf(KeptRow::Part part, const Variant &v,
                      Difficulty difficulty) {
  bool exists =
      part == KeptRow::Convolution ? v.conv > 0 : v.norm != OutputNorm::None;
  for (const KeptRow &row : keptTable())
    if (exists && v.form == Form::Chunk && row.part == part &&
        row.difficulty.value_or(difficulty) == difficulty &&
        row.beta.value_or(*v.beta) == *v.beta)
      return row;
  return {part, {}, {}, 0.0, 0.0, {}};
}

/// The same of form rows, given what its arithmetic costs.
static Tolerance rowsTolerance(const Variant &v, double arithmetic) {
  double once = roundingOf(v.dtype), sum = roundedSumFactor * once;
  switch (v.rows) {
  case RowOp::Norm: // passes on the sum's relative errors
    return {std::hypot(arithmetic, sum, once), sum, worstRowFactor};
  case RowOp::Add:
    return {sum, 0.0, worstRowFactor};
  case RowOp::None:
  case RowOp::Gather: // a copy
    return {0.0, 0.0, worstRowFactor};
  case RowOp::Mix: // of up to eight terms
    return {std::hypot(arithmetic, mixedScoreError, once), 0.0, worstRowFactor};
  case RowOp::Combine: // eight terms
  case RowOp::Latent:
  case RowOp::Silu:
  case RowOp::Situ:
  case RowOp::Sigmoid:
    break;
  }
  return {std::hypot(arithmetic, once), 0.0, worstRowFactor};
}

double longSequenceFactor(Difficulty difficulty, int64_t longest) {
  if (difficulty != Difficulty::Correlated)
    return 1.0;
  return std::clamp(std::sqrt(double(longest) / 1024.0), 1.0, 1.6);
}

Tolerance toleranceOf(const Variant &variant, Difficulty difficulty,
                      int64_t longest) {
  double length = variant.form == Form::Chunk
                      ? longSequenceFactor(difficulty, longest)
                      : 1.0;
  KeptRow conv = keptOf(KeptRow::Convolution, variant, difficulty);
  KeptRow norm = keptOf(KeptRow::Norm, variant, difficulty);
  double once = roundingOf(variant.dtype);
  for (const ArithmeticRow &row : arithmeticTable())
    if (matches(row, variant, difficulty) && variant.form == Form::Rows)
      return rowsTolerance(variant, row.out);
    else if (matches(row, variant, difficulty))
      return {std::hypot(row.out * length *
                             (norm.out > 0.0 ? normedArithmeticFactor : 1.0),
                         once * std::hypot(conv.out, norm.out), once),
              std::hypot(row.state * length, once * conv.state,
                         roundingOf(variant.stateDtype)),
              norm.out > 0.0 ? normedRowFactor : worstRowFactor};
  return {};
}

double smallSampleFactor(int64_t elements, int64_t rows) {
  double samples =
      std::sqrt(std::max(1.0, double(elements)) * std::max(1.0, double(rows)));
  return 1.0 + 6.0 / std::sqrt(samples);
}

} // namespace kdac::reference
