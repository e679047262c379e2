#include "BenchPrompt.h"

#include <algorithm>

namespace kdac::selftest {

int64_t BenchPrompt::size(const std::string &name) const {
  int64_t shared = v.keyDim - v.valueDim, heads = shape.heads;
  for (auto [size, value] :
       {std::pair("N", shape.sequences),
        {"H", heads},
        {"D", v.keyDim},
        {"R", shared},
        {"E", v.valueDim},
        {"T", shape.longest()},
        {"q_stride", heads * v.keyDim},
        {"kv_stride", heads * 2 * v.valueDim}, // as wide as values
        {"shared_stride", shared},
        {"out_stride", heads * v.valueDim}})
    if (name == size)
      return value;
  return 0; // later
}

int64_t BenchPrompt::elements(const Arg &tensor) const {
  if (tensor.dtype == DType::I32)
    return shape.sequences + 1;
  return shape.allTokens() * size(tensor.name + "_stride");
}

std::vector<int64_t> BenchPrompt::integers(const Arg &) const {
  return shape.bounds();
}

namespace {

/// Rows that the oracle looks at, and the keys that they see.
struct Sample {
  std::vector<int64_t> rows, keys, offsets = {0}, keyOffsets = {0};

  explicit Sample(const BenchShape &shape) {
    constexpr int64_t half = BenchPrompt::rowsChecked / 2;
    std::vector<int64_t> bounds = shape.bounds();
    for (size_t n = 0; n + 1 < bounds.size(); ++n) {
      int64_t begin = bounds[n], end = bounds[n + 1];
      int64_t first = std::min(end - begin, half);
      int64_t last = std::min(end - begin - first, half);
      add(begin, begin, begin + first);
      add(begin, end - last, end);
    }
  }
  /// Rows `first` .. `end` of a sequence that begins at `begin`.
  void add(int64_t begin, int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row)
      rows.push_back(row);
    for (int64_t key = begin; key < end; ++key)
      keys.push_back(key);
    offsets.push_back(static_cast<int64_t>(rows.size()));
    keyOffsets.push_back(static_cast<int64_t>(keys.size()));
  }
};

} // namespace

std::vector<int64_t> BenchPrompt::sampledRows() const {
  return Sample(shape).rows;
}

reference::PromptOperands
BenchPrompt::operands(Patterns &patterns,
                      const std::vector<int64_t> &heads) const {
  Sample sample(shape);
  reference::PromptOperands o;
  o.heads = static_cast<int64_t>(heads.size());
  o.width = v.keyDim;
  o.sharedWidth = v.keyDim - v.valueDim;
  o.values = v.valueDim;
  o.offsets = sample.offsets;
  o.keyOffsets = sample.keyOffsets;
  o.scale = attentionScale;
  o.q = rowsOf(patterns.of(v, "q"), v.keyDim, size("q_stride"), heads,
               sample.rows);
  o.kv = rowsOf(patterns.of(v, "kv"), 2 * v.valueDim, size("kv_stride"), heads,
                sample.keys);
  o.shared = rowsOf(patterns.of(v, "shared"), o.sharedWidth,
                    size("shared_stride"), {}, sample.keys);
  return o;
}

} // namespace kdac::selftest
