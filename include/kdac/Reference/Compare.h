// Promises: the distance of one output tensor from the oracle, and its flaws.
// Does not: decide what is close enough (Tolerance.h), or print.
#ifndef KDAC_REFERENCE_COMPARE_H
#define KDAC_REFERENCE_COMPARE_H

#include "kdac/Reference/Buffer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kdac::reference {

/// What is wrong with an element whatever the tolerance.
enum class Flaw { None, Unwritten, NotFinite };

/// One tensor against the oracle.
struct Comparison {
  std::string tensor;
  int64_t elements = 0;
  double relative = 0.0; ///< |actual - expected| / |expected|, Frobenius
  /// The largest |row error| / max(|expected row|, RMS of the expected rows).
  double worstRow = 0.0;
  double ofOthers = 0.0; ///< `relative` without the worst row's error
  double maxAbs = 0.0;
  Flaw flaw = Flaw::None;
  int64_t firstBad = -1; ///< flat index of the first flawed element
  double bound = 0.0;    ///< on bounded(); set by the checker
  double rowBound = 0.0; ///< on `worstRow`

  bool worstApart = false; ///< the worst row has a bound of its own only

  double bounded() const { return worstApart ? ofOthers : relative; }
  bool passed() const {
    return flaw == Flaw::None && bounded() <= bound && worstRow <= rowBound;
  }
};

/// Compares the first `tokens` tokens of `actual` with `expected`, which is
/// contiguous [tokens, heads, width].
Comparison compare(const Buffer &actual, const std::vector<double> &expected,
                   int64_t tokens);

/// One line: tensor, errors, bounds, flaw.
std::string toString(const Comparison &comparison);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_COMPARE_H
