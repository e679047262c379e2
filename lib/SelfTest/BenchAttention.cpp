#include "BenchAttention.h"

#include <algorithm>

namespace kdac::selftest {

static int64_t pagesOf(int64_t keys) {
  return (keys + pageKeys - 1) / pageKeys;
}

int64_t BenchAttention::size(const std::string &name) const {
  int64_t pitch = 1, pages = 1;
  for (int64_t length : shape.allLengths()) {
    pitch = std::max(pitch, pagesOf(length));
    pages += pagesOf(length);
  }
  for (auto [size, value] : {std::pair("N", shape.sequences),
                             {"S", shape.sequences},
                             {"H", shape.heads},
                             {"D", v.keyDim},
                             {"R", v.valueDim},
                             {"P", pages},
                             {"table_pitch", pitch}})
    if (name == size)
      return value;
  return 0;
}

int64_t BenchAttention::elements(const Arg &tensor) const {
  return product(tensor.shape);
}

std::vector<int64_t> BenchAttention::table() const {
  std::vector<int64_t> lengths = shape.allLengths(), all;
  auto pitch = static_cast<size_t>(size("table_pitch"));
  int64_t next = 0;
  for (size_t n = 0; n < lengths.size(); ++n) {
    for (int64_t j = 0; j < pagesOf(lengths[n]); ++j)
      all.push_back(next++);
    all.resize((n + 1) * pitch);
  }
  return all;
}

std::vector<int64_t> BenchAttention::integers(const Arg &tensor) const {
  return tensor.name == "lengths" ? shape.allLengths()
         : tensor.name == "slots" ? countFrom(0, shape.sequences)
                                  : table();
}

reference::AttentionOperands
BenchAttention::operands(Patterns &patterns,
                         const std::vector<int64_t> &heads) const {
  reference::AttentionOperands o =
      reference::operandsOfSizes([&](const char *of) { return size(of); });
  int64_t all = o.heads;
  o.heads = static_cast<int64_t>(heads.size()); // those that are checked
  o.table = table();
  o.slots = countFrom(0, shape.sequences);
  o.lengths = shape.allLengths();
  o.scale = attentionScale;
  o.q = rowsOf(patterns.of(v, "q"), o.width, all * o.width, heads);
  o.pages = rowsOf(patterns.of(v, "pages"), o.width, o.width);
  return o;
}

} // namespace kdac::selftest
