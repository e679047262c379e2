#include "BenchAttention.h"

#include <algorithm>
#include <numeric>

namespace kdac::selftest {

namespace {

std::vector<int64_t> lengthsOf(const BenchShape &shape) {
  if (!shape.lengths.empty())
    return shape.lengths;
  return std::vector<int64_t>(static_cast<size_t>(shape.sequences),
                              shape.tokens);
}

int64_t pagesOf(int64_t keys) { return (keys + pageKeys - 1) / pageKeys; }

} // namespace

int64_t attentionSize(const Variant &v, const BenchShape &shape,
                      const std::string &name) {
  int64_t pitch = 1, pages = 1;
  for (int64_t length : lengthsOf(shape)) {
    pitch = std::max(pitch, pagesOf(length));
    pages += pagesOf(length);
  }
  if (name == "N" || name == "S")
    return shape.sequences;
  if (name == "H")
    return shape.heads;
  if (name == "D")
    return v.keyDim;
  if (name == "R")
    return v.valueDim;
  if (name == "P")
    return pages;
  return pitch;
}

int64_t attentionElements(const Variant &v, const BenchShape &shape,
                          const std::string &name) {
  auto size = [&](const char *of) { return attentionSize(v, shape, of); };
  if (name == "q")
    return size("N") * size("H") * size("D");
  if (name == "out")
    return size("N") * size("H") * size("R");
  if (name == "pages")
    return size("P") * pageKeys * size("D");
  return name == "table" ? size("S") * size("table_pitch") : size("N");
}

std::vector<int64_t> attentionIntegers(const Variant &v,
                                       const BenchShape &shape,
                                       const std::string &name) {
  std::vector<int64_t> lengths = lengthsOf(shape);
  if (name == "lengths")
    return lengths;
  std::vector<int64_t> all(
      static_cast<size_t>(attentionElements(v, shape, name)));
  if (name == "slots") {
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  int64_t pitch = attentionSize(v, shape, "table_pitch"), next = 0;
  for (size_t n = 0; n < lengths.size(); ++n)
    for (int64_t j = 0; j < pagesOf(lengths[n]); ++j)
      all[n * static_cast<size_t>(pitch) + static_cast<size_t>(j)] = next++;
  return all;
}

reference::AttentionOperands
attentionOperands(const Variant &v, const BenchShape &shape, Patterns &patterns,
                  const std::vector<int64_t> &heads) {
  auto size = [&](const char *of) { return attentionSize(v, shape, of); };
  auto patternOf = [&](const char *name) -> const Pattern & {
    for (const Arg &arg : kernelArgs(v))
      if (arg.name == name)
        return patterns.of(v, arg);
    std::abort(); // not a kernel of form attention
  };
  reference::AttentionOperands o = reference::operandsOfSizes(size);
  o.heads = static_cast<int64_t>(heads.size()); // those that are checked
  for (auto [name, to] : {std::pair("table", &o.table),
                          {"slots", &o.slots},
                          {"lengths", &o.lengths}})
    *to = attentionIntegers(v, shape, name);
  o.scale = attentionScale;
  o.q = [&pattern = patternOf("q"), heads, all = size("H"),
         width = o.width](int64_t n, int64_t head, double *row) {
    for (int64_t i = 0; i < width; ++i)
      row[i] = pattern.at((n * all + heads[head]) * width + i);
  };
  o.pages = [&pattern = patternOf("pages"),
             width = o.width](int64_t number, int64_t, double *row) {
    for (int64_t i = 0; i < width; ++i)
      row[i] = pattern.at(number * width + i);
  };
  return o;
}

} // namespace kdac::selftest
