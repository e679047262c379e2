#include "kdac/Reference/Compare.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kdac::reference {

namespace {

/// Sums over one token's rows; tokens are added up in order afterwards, so that
/// the result does not depend on the number of threads.
struct TokenSums {
  double error = 0.0, reference = 0.0, maxAbs = 0.0;
  Flaw flaw = Flaw::None;
  int64_t firstBad = -1;
};

struct RowNorms {
  double error, reference;
};

void note(TokenSums &sums, Flaw flaw, int64_t index) {
  if (sums.flaw == Flaw::None) {
    sums.flaw = flaw;
    sums.firstBad = index;
  }
}

RowNorms compareRow(const Buffer &actual, const double *expected, int64_t token,
                    int64_t head, TokenSums &sums) {
  const Layout &layout = actual.layout();
  RowNorms norms = {0.0, 0.0};
  for (int64_t c = 0; c < layout.width; ++c) {
    double value = actual.get(token, head, c);
    int64_t index = (token * layout.heads + head) * layout.width + c;
    if (!std::isfinite(value)) {
      note(sums,
           actual.isPoison(token, head, c) ? Flaw::Unwritten : Flaw::NotFinite,
           index);
      continue;
    }
    double error = value - expected[c];
    norms.error += error * error;
    norms.reference += expected[c] * expected[c];
    sums.maxAbs = std::max(sums.maxAbs, std::fabs(error));
  }
  sums.error += norms.error;
  sums.reference += norms.reference;
  return norms;
}

/// a / b where both may be zero, or b far below what any type distinguishes.
double ratio(double a, double b) { return a == 0.0 ? 0.0 : a / (b + 1e-300); }

} // namespace

Comparison compare(const Buffer &actual, const std::vector<double> &expected,
                   int64_t tokens) {
  const Layout &layout = actual.layout();
  std::vector<TokenSums> sums(static_cast<size_t>(tokens));
  std::vector<RowNorms> rows(static_cast<size_t>(tokens * layout.heads));
  parallelFor(tokens, [&](int64_t token) {
    for (int64_t head = 0; head < layout.heads; ++head) {
      int64_t row = token * layout.heads + head;
      rows[row] = compareRow(actual, expected.data() + row * layout.width,
                             token, head, sums[token]);
    }
  });
  Comparison result;
  result.tensor = actual.name();
  result.elements = tokens * layout.rowElements();
  TokenSums total;
  for (const TokenSums &s : sums) {
    total.error += s.error;
    total.reference += s.reference;
    total.maxAbs = std::max(total.maxAbs, s.maxAbs);
    if (s.flaw != Flaw::None)
      note(total, s.flaw, s.firstBad);
  }
  double meanRow =
      total.reference / static_cast<double>(std::max<size_t>(1, rows.size()));
  double others = total.error;
  for (const RowNorms &row : rows) {
    double own = std::sqrt(ratio(row.error, std::max(row.reference, meanRow)));
    if (own < result.worstRow)
      continue;
    result.worstRow = own;
    others = total.error - row.error;
  }
  result.relative = std::sqrt(ratio(total.error, total.reference));
  result.ofOthers = std::sqrt(ratio(std::max(0.0, others), total.reference));
  result.maxAbs = total.maxAbs;
  result.flaw = total.flaw;
  result.firstBad = total.firstBad;
  return result;
}

std::string toString(const Comparison &c) {
  char line[256];
  std::snprintf(line, sizeof line,
                "%s relative %.3g%s (bound %.3g), worst row %.3g (bound "
                "%.3g), max abs %.3g",
                c.tensor.c_str(), c.bounded(),
                c.worstApart ? " but for the worst row" : "", c.bound,
                c.worstRow, c.rowBound, c.maxAbs);
  std::string text = line;
  if (c.flaw != Flaw::None)
    text += (c.flaw == Flaw::Unwritten ? ", unwritten" : ", not finite") +
            std::string(" at element ") + std::to_string(c.firstBad);
  return text + (c.passed() ? "" : ", FAILED");
}

} // namespace kdac::reference
