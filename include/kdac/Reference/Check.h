// Promises: run a kernel on a case and judge every output: closeness, complete
// writes, untouched guards and inputs, bitwise pass-through of empty sequences.
// Does not: know how kernels run, or print.
#ifndef KDAC_REFERENCE_CHECK_H
#define KDAC_REFERENCE_CHECK_H

#include "kdac/Reference/Case.h"
#include "kdac/Reference/Compare.h"
#include "kdac/Reference/Tolerance.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kdac::reference {

/// Runs the kernel on the case: reads its inputs, writes its output buffers
/// (argv() on the host, copies of buffers() on a device). Returns a sentence on
/// failure.
using Runner = std::function<std::optional<std::string>(Case &)>;

/// The verdict on one run.
struct CheckResult {
  std::vector<Comparison> tensors;   ///< out, and ht if it exists
  std::vector<std::string> failures; ///< whatever is no matter of closeness

  bool passed() const;
};

/// Poisons the outputs, runs, and compares with the oracle's results (computed
/// when not given, which costs far more than a kernel does).
CheckResult check(Case &c, const Runner &runner,
                  const Results *expected = nullptr);

/// All lines of a result, joined by "; ".
std::string toString(const CheckResult &result);

/// Gives a comparison of a tensor with rows of `width` its bounds, from the
/// tolerance table's `bound` for a whole large tensor and its factor for rows.
void setBounds(Comparison &comparison, double bound, int64_t width,
               double rowFactor = worstRowFactor);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_CHECK_H
