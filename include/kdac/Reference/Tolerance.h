// Promises: the one table that says how close is close enough, with the reason
// for every row. No bound lives at a call site.
// Does not: compare anything (Compare.h).
#ifndef KDAC_REFERENCE_TOLERANCE_H
#define KDAC_REFERENCE_TOLERANCE_H

#include "kdac/Reference/Recipe.h"
#include "kdac/Target/Targets.h"
#include "kdac/Variant/Variant.h"

#include <optional>
#include <string_view>
#include <vector>

namespace kdac::reference {

/// What rounding a tensor once to `dtype` costs: relative RMS error.
struct RoundingRow {
  DType dtype;
  double error;
  std::string_view why;
};

/// What a chunk kernel's product operands are rounded to. Refined: bf16, but
/// what weighs most in a chunk is not (docs/decisions/0021).
enum class Products { F32, TF32, BF16, Refined };

/// The contract of `precision` (docs/NUMERICS.md): f32 on the host and in the
/// step form; else fast is bf16, and default is bf16 for bf16 inputs, refined
/// where dplr-select-schedule can, and tf32 for others; high is refined where
/// the variant's own schedule is, else tf32 (or f16, which has as many bits).
Products productsOf(const Variant &variant);

/// True if the variant's own schedule has roles as warps, which refine their
/// products unless precision is fast: what dplr-select-schedule finds out.
bool hasRefinedSchedule(const Variant &variant);

/// What a kernel's arithmetic costs before the result is rounded: relative RMS
/// errors of out and final state. Empty fields match everything.
struct ArithmeticRow {
  TargetKind target;
  Form form;
  std::optional<Difficulty> difficulty;
  std::optional<Products> products;
  std::optional<Beta> beta;
  double out;
  double state;
  std::string_view why;
};

const std::vector<RoundingRow> &roundingTable();

/// The first row that matches counts; the last ones match every variant.
const std::vector<ArithmeticRow> &arithmeticTable();

/// What the chunk form keeps in memory between its launches: convolved q, k and
/// v before the recurrence, the output before its norm. Errors of out and final
/// state, in roundings to the dtype. Empty fields match everything.
struct KeptRow {
  enum Part { Convolution, Norm } part;
  std::optional<Difficulty> difficulty;
  std::optional<Beta> beta;
  double out;
  double state;
  std::string_view why;
};

/// The first row of a part that matches counts.
const std::vector<KeptRow> &keptTable();

/// Bounds on relative Frobenius errors of whole tensors: arithmetic, roundings
/// on the way and the final one are independent and add in squares.
struct Tolerance {
  double out = 0.0;
  double state = 0.0;
  /// Factor on `out` for the worst row: see worstRowFactor.
  double outRow = 0.0;
};

/// Roundings that a sum of two numbers of the type counts as. What it drops is
/// a multiple of the smaller number's last place, so ties are common: where one
/// bit is dropped the error is 0 or half an ulp, RMS 0.354 ulp instead of
/// 0.289.
constexpr double roundedSumFactor = 1.23;

/// What weights of `mix` lose besides: a score of 8 nats is 11.5 in base 2,
/// half an ulp 4.8e-7 in each of its sum, the sum by the norm, and that by log2
/// e.
constexpr double mixedScoreError = 6e-7;

/// The bounds for a resolved variant of a known target, where the longest
/// sequence has `longest` tokens.
Tolerance toleranceOf(const Variant &variant, Difficulty difficulty,
                      int64_t longest = 0);

/// Factor on the arithmetic of the chunk form: alike keys whose errors are
/// hardly forgotten add them up, like independent ones, until the oldest are
/// forgotten. Rows of the table are of sequences of up to 1024 tokens. The
/// model has out 1.7e-2, 2.3e-2 and 2.8e-2, state 2.8e-2, 3.6e-2 and 3.6e-2 at
/// 1024, 4096 and 8192 tokens.
double longSequenceFactor(Difficulty difficulty, int64_t longest);

/// Factor on a bound for a tensor of `rows` rows with `elements` numbers in
/// all: the RMS of n independent roundings scatters by about 1 / sqrt(n). A
/// rounded coefficient of a product is shared by a whole row and a rounded
/// update by a whole column, so n lies between rows and elements: their
/// geometric mean. Six such deviations: recipes whose rows differ in size have
/// fewer that count.
double smallSampleFactor(int64_t elements, int64_t rows);

/// Factor on a bound for the worst row (one token and head of out, one head of
/// a state), measured against at least the tensor's mean row: rows differ in
/// cancellation, but a wrong row among many must not drown in the mean.
constexpr double worstRowFactor = 4.0;

/// The same for rows that a norm has made equally long after they were rounded:
/// one that had cancelled to an eighth of the mean row shows its error in full.
/// Such a row counts for itself only: it may be most of a short tensor's error.
constexpr double normedRowFactor = 8.0 * worstRowFactor;

/// And on the arithmetic row of out: rows that had cancelled, many in short
/// sequences, count as much as others. Without it one of eight runs of k128v256
/// on the emulator was 1 % above its bound.
constexpr double normedArithmeticFactor = 1.6;

} // namespace kdac::reference

#endif // KDAC_REFERENCE_TOLERANCE_H
