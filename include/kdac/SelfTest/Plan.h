// Promises: which cases a variant must pass, and which shapes it is timed on.
// Does not: run anything.
#ifndef KDAC_SELFTEST_PLAN_H
#define KDAC_SELFTEST_PLAN_H

#include "kdac/Reference/Case.h"
#include "kdac/Runtime/Status.h"

namespace kdac::selftest {

/// The correctness cases of a variant: tails around chunk borders, packed
/// sequences with empty ones anywhere, grouped value heads, strided tokens,
/// absent optional arguments, no tokens at all, hard values, and, of a small
/// variant where `many`, more sequences than a grid's y dimension holds.
std::vector<reference::CaseSpec> casesOf(const Variant &variant, uint64_t seed,
                                         bool many = true);

/// One benchmark shape: FORM:N:T:H[:HV], T a number or packed lengths a+b+c. Of
/// form rows: rows:1:T:D, T rows of D elements. Of form matmul: matmul:G:T:D:E,
/// T entries for each of G groups.
struct BenchShape {
  Form form = Form::Chunk;
  int64_t sequences = 1;
  int64_t tokens = 0;           ///< dense: of each sequence
  std::vector<int64_t> lengths; ///< packed, or empty
  int64_t heads = 1;
  int64_t valueHeads = 1;

  /// Of every sequence, packed or not; where each begins, and the last ends.
  std::vector<int64_t> allLengths() const;
  std::vector<int64_t> bounds() const;
  int64_t allTokens() const;
  int64_t longest() const;     ///< tokens of the longest sequence
  std::string spelled() const; ///< as parsed
};

/// True if the variant is timed on that shape: it is of its form and takes its
/// rows.
bool suits(const Variant &variant, const BenchShape &shape);

/// Shapes separated by commas.
StatusOr<std::vector<BenchShape>> parseShapes(const std::string &text);

} // namespace kdac::selftest

#endif // KDAC_SELFTEST_PLAN_H
