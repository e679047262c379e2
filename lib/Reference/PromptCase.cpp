#include "PromptCase.h"

#include <algorithm>

namespace kdac::reference {

namespace {

/// Keys of a call before which others' stand, and behind the last of which.
constexpr int64_t unusedKeys = 2;

/// Where the keys of every sequence begin, and where the last ones end.
std::vector<int64_t> keyBounds(const Case &c) {
  std::vector<int64_t> bounds = {unusedKeys};
  const std::vector<int64_t> &pasts = c.spec().pasts;
  for (int64_t n = 0; n < c.sequences(); ++n) {
    int64_t rows = c.offsets()[n + 1] - c.offsets()[n];
    int64_t past = pasts.empty() ? 0 : pasts[static_cast<size_t>(n)];
    bounds.push_back(bounds.back() + std::max<int64_t>(0, past + rows));
  }
  return bounds;
}

int64_t rowsOfLongest(const Case &c) {
  int64_t longest = 0;
  for (int64_t n = 0; n < c.sequences(); ++n)
    longest = std::max(longest, c.offsets()[n + 1] - c.offsets()[n]);
  return longest;
}

} // namespace

std::optional<std::string> validatePrompt(const CaseSpec &spec) {
  const Variant &v = spec.variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  if (spec.columns < 0 || spec.columns % multiple != 0 ||
      spec.columns > v.keyDim)
    return "D = " + std::to_string(spec.columns) + " must be a multiple of " +
           std::to_string(multiple) + " elements up to " +
           std::to_string(v.keyDim);
  size_t sequences = spec.lengths.empty() ? static_cast<size_t>(spec.sequences)
                                          : spec.lengths.size();
  if (!spec.pasts.empty() && spec.pasts.size() != sequences)
    return std::to_string(spec.pasts.size()) + " pasts for " +
           std::to_string(sequences) + " sequences";
  if (spec.later < 0)
    return "later = " + std::to_string(spec.later) + " keys are negative";
  return std::nullopt;
}

int64_t promptSize(const Case &c, const std::string &name) {
  const Variant &v = c.spec().variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  // As large a part as the variant's.
  auto share = [&](int64_t width) {
    return c.columns() * width / v.keyDim / multiple * multiple;
  };
  if (name == "N")
    return c.sequences();
  if (name == "H")
    return c.heads();
  if (name == "D")
    return c.columns();
  if (name == "R")
    return share(v.keyDim - v.valueDim);
  if (name == "E")
    return share(v.valueDim);
  if (name == "T")
    return rowsOfLongest(c);
  if (name == "later")
    return c.spec().later;
  std::string tensor = name.substr(0, name.rfind("_stride"));
  return promptLayout(c, tensor).stride;
}

Layout promptLayout(const Case &c, const std::string &name) {
  auto size = [&](const char *of) { return promptSize(c, of); };
  int64_t heads = c.heads(), gap = c.spec().tokenGap;
  int64_t keys = keyBounds(c).back() + unusedKeys, values = size("E");
  if (name == "kv") {
    int64_t width = size("D") - size("R") + values;
    return {keys, heads, width, heads * width + gap};
  }
  if (name == "shared")
    return {keys, 1, size("R"), size("R") + gap};
  if (name == "q")
    return {c.tokens(), heads, size("D"), heads * size("D") + gap};
  if (name == "out")
    return {c.tokens(), heads, values, heads * values + gap};
  if (name == "before" || name == "after")
    return {c.tokens(), heads, values, heads * values};
  if (name == "before_logs" || name == "after_logs")
    return {c.tokens(), heads, 1, heads};
  return {1, 1, c.sequences() + 1, c.sequences() + 1}; // offsets, key_offsets
}

void fillOffsets(Case &c) {
  std::vector<int64_t> keys = keyBounds(c);
  for (int64_t n = 0; n <= c.sequences(); ++n) {
    c.find("offsets")->set(0, 0, n, double(c.offsets()[n]));
    c.find("key_offsets")->set(0, 0, n, double(keys[static_cast<size_t>(n)]));
  }
}

PromptOperands promptOperandsOf(const Case &c) {
  PromptOperands o;
  o.heads = c.heads();
  o.width = c.columns();
  o.sharedWidth = promptSize(c, "R");
  o.values = promptSize(c, "E");
  o.q = c.rows("q");
  o.kv = c.rows("kv");
  o.shared = c.rows("shared");
  o.before = c.rows("before");
  o.beforeLogs = c.rows("before_logs");
  o.offsets = c.offsets();
  o.keyOffsets = keyBounds(c);
  o.later = c.spec().later;
  o.scale = c.scale();
  return o;
}

} // namespace kdac::reference
