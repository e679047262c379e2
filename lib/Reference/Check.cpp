#include "kdac/Reference/Check.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/Pool.h"

#include <algorithm>
#include <cstring>

namespace kdac::reference {

namespace {

using Failures = std::vector<std::string>;

/// Digests of the inputs, in the order of buffers().
std::vector<uint64_t> inputDigests(const Case &c) {
  std::vector<uint64_t> digests;
  for (const Buffer &buffer : c.buffers())
    digests.push_back(buffer.kind() == ArgKind::Input ? buffer.digest() : 0);
  return digests;
}

void checkMemory(const Case &c, const std::vector<uint64_t> &before,
                 Failures &failures) {
  std::vector<uint64_t> after = inputDigests(c);
  for (size_t i = 0; i < before.size(); ++i) {
    const Buffer &buffer = c.buffers()[i];
    bool changes = &buffer == c.poolAfter(); // judged slot by slot
    if (before[i] != after[i] && !changes)
      failures.push_back("input " + buffer.name() + " was written to");
    if (!buffer.guardsIntact())
      failures.push_back("memory next to " + buffer.name() + " was written to");
  }
}

/// True if the final state of `sequence` is its initial one, bit by bit.
bool passedThrough(const Buffer &final, const Buffer *initial,
                   int64_t sequence) {
  const Layout &layout = final.layout();
  int64_t size = layout.rowElements() * dtypeSize(final.dtype());
  auto *bytes = static_cast<const std::byte *>(final.data()) + sequence * size;
  if (!initial)
    return std::all_of(bytes, bytes + size,
                       [](std::byte b) { return b == std::byte{0}; });
  return std::memcmp(bytes,
                     static_cast<const std::byte *>(initial->data()) +
                         sequence * size,
                     static_cast<size_t>(size)) == 0;
}

void checkEmptySequences(const Case &c, Failures &failures) {
  const Buffer *final = c.find("ht");
  for (int64_t n = 0; final && n < c.sequences(); ++n)
    if (c.offsets()[n] == c.offsets()[n + 1] &&
        !passedThrough(*final, c.find("h0"), n)) {
      failures.push_back("empty sequence " + std::to_string(n) +
                         " does not pass its state through bitwise");
      return;
    }
}

/// Tokens of no sequence belong to nobody: a kernel must not write them.
void checkTrailing(const Case &c, Failures &failures) {
  const Buffer &out = *c.find("out");
  for (int64_t t = c.coveredTokens(); t < c.tokens(); ++t)
    for (int64_t head = 0; head < out.layout().heads; ++head)
      for (int64_t j = 0; j < out.layout().width; ++j)
        if (!out.isPoison(t, head, j)) {
          failures.push_back("out was written at token " + std::to_string(t) +
                             ", which is in no sequence");
          return;
        }
}

int64_t longestOf(const Case &c) {
  int64_t longest = 0;
  for (int64_t n = 0; n < c.sequences(); ++n)
    longest = std::max(longest, c.offsets()[n + 1] - c.offsets()[n]);
  return longest;
}

Failures joined(Failures a, const Failures &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Comparison judge(const Buffer &actual, const std::vector<double> &expected,
                 int64_t tokens, double bound,
                 double rowFactor = worstRowFactor) {
  Comparison result = compare(actual, expected, tokens);
  setBounds(result, bound, actual.layout().width, rowFactor);
  return result;
}

} // namespace

void setBounds(Comparison &comparison, double bound, int64_t width,
               double rowFactor) {
  width = std::max<int64_t>(1, width);
  comparison.bound = bound * smallSampleFactor(comparison.elements,
                                               comparison.elements / width);
  comparison.rowBound = bound * rowFactor * smallSampleFactor(width, width);
  comparison.worstApart = rowFactor >= normedRowFactor;
}

bool CheckResult::passed() const {
  return failures.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const Comparison &c) { return c.passed(); });
}

CheckResult check(Case &c, const Runner &runner, const Results *expected) {
  CheckResult result;
  c.poisonOutputs();
  std::vector<uint64_t> digests = inputDigests(c);
  if (std::optional<std::string> error = runner(c)) {
    result.failures.push_back(*error);
    return result;
  }
  checkMemory(c, digests, result.failures);
  result.failures = joined(std::move(result.failures), cacheFailures(c));
  bool hasPool = c.spec().variant.slots.has_value();
  if (hasPool)
    result.failures = joined(std::move(result.failures), poolFailures(c));
  else
    checkEmptySequences(c, result.failures);
  if (hasPool && c.spec().checked && expectedStatus(c) >= 0)
    return result; // nothing was to be written
  checkTrailing(c, result.failures);
  Results computed;
  if (!expected) {
    computed = oracleOf(c);
    expected = &computed;
  }
  Tolerance tolerance =
      toleranceOf(c.spec().variant,
                  difficultyOf(c.spec().variant, *findRecipe(c.spec().recipe)),
                  longestOf(c));
  if (c.spec().variant.rows == RowOp::Latent) {
    if (std::string failure = placeFailure(c); !failure.empty())
      result.failures.push_back(failure);
    PlacedRows rows = placedRows(c, expected->out);
    result.tensors.push_back(judge(rows.actual, rows.expected,
                                   rows.actual.layout().tokens, tolerance.out,
                                   tolerance.outRow));
    return result;
  }
  result.tensors.push_back(judge(*c.find("out"), expected->out,
                                 c.coveredTokens(), tolerance.out,
                                 tolerance.outRow));
  for (auto [name, values] : {std::pair("after", &expected->out),
                              std::pair("after_logs", &expected->logs),
                              std::pair("sums", &expected->out)})
    if (const Buffer *after = c.find(name))
      result.tensors.push_back(
          judge(*after, *values, c.coveredTokens(), tolerance.state));
  if (const Buffer *sum = c.find("sum"))
    result.tensors.push_back(
        judge(*sum, expected->finalState, c.tokens(), tolerance.state));
  if (hasPool && c.poolAfter()) {
    WrittenStates states = writtenStates(c, *expected);
    result.tensors.push_back(judge(states.actual, states.expected,
                                   states.actual.layout().tokens,
                                   tolerance.state));
  } else if (const Buffer *final = c.find("ht"))
    result.tensors.push_back(
        judge(*final, expected->finalState, c.sequences(), tolerance.state));
  return result;
}

std::string toString(const CheckResult &result) {
  std::string text;
  for (const std::string &failure : result.failures)
    text += (text.empty() ? "" : "; ") + failure;
  for (const Comparison &comparison : result.tensors)
    text += (text.empty() ? "" : "; ") + toString(comparison);
  return text;
}

} // namespace kdac::reference
