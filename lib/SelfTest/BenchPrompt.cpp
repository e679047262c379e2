#include "BenchPrompt.h"
#include "BenchAttention.h"

#include <algorithm>
#include <cstdlib>

namespace kdac::selftest {

int64_t promptSize(const Variant &v, const BenchShape &shape,
                   const std::string &name) {
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

int64_t promptElements(const Variant &v, const BenchShape &shape,
                       const std::string &name) {
  if (name == "offsets" || name == "key_offsets")
    return shape.sequences + 1;
  return shape.allTokens() * promptSize(v, shape, name + "_stride");
}

namespace {

/// Rows that the oracle looks at, and the keys that they see.
struct Sample {
  std::vector<int64_t> rows, keys, offsets = {0}, keyOffsets = {0};

  explicit Sample(const BenchShape &shape) {
    int64_t begin = 0;
    for (int64_t n = 0; n < shape.sequences; ++n) {
      int64_t length = shape.lengths.empty()
                           ? shape.tokens
                           : shape.lengths[static_cast<size_t>(n)];
      int64_t first = std::min(length, promptRowsChecked / 2);
      int64_t last = std::min(length - first, promptRowsChecked / 2);
      add(begin, begin, begin + first);
      add(begin, begin + length - last, begin + length);
      begin += length;
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

std::vector<int64_t> promptRows(const BenchShape &shape) {
  return Sample(shape).rows;
}

reference::PromptOperands promptOperands(const Variant &v,
                                         const BenchShape &shape,
                                         Patterns &patterns,
                                         const std::vector<int64_t> &heads) {
  Sample sample(shape);
  reference::PromptOperands o;
  o.heads = static_cast<int64_t>(heads.size());
  o.width = v.keyDim;
  o.sharedWidth = v.keyDim - v.valueDim;
  o.values = v.valueDim;
  o.offsets = sample.offsets;
  o.keyOffsets = sample.keyOffsets;
  o.scale = attentionScale;
  auto rowsOf = [&](const char *name, const std::vector<int64_t> &numbers,
                    const std::vector<int64_t> &heads,
                    int64_t width) -> reference::Rows {
    for (const Arg &arg : kernelArgs(v))
      if (arg.name == name)
        return [&pattern = patterns.of(v, arg), numbers, heads, width,
                stride = promptSize(v, shape, arg.name + "_stride")](
                   int64_t row, int64_t head, double *x) {
          int64_t first = numbers[row] * stride + heads[head] * width;
          for (int64_t i = 0; i < width; ++i)
            x[i] = pattern.at(first + i);
        };
    std::abort(); // not a kernel of form prompt
  };
  o.q = rowsOf("q", sample.rows, heads, v.keyDim);
  o.kv = rowsOf("kv", sample.keys, heads, 2 * v.valueDim);
  o.shared = rowsOf("shared", sample.keys, {0}, o.sharedWidth);
  return o;
}

} // namespace kdac::selftest
