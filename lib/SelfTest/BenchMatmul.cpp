#include "BenchMatmul.h"

#include "kdac/Reference/RowOps.h"

#include <algorithm>
#include <cstdlib>

namespace kdac::selftest {

namespace {

constexpr int64_t choices = 8; ///< experts of a row

bool isGrouped(const BenchShape &shape) { return shape.sequences > 1; }
bool hasOrder(const Variant &v, const BenchShape &shape) {
  return isGrouped(shape) && v.rows != RowOp::None;
}

std::vector<int64_t> startsOf(const BenchShape &shape) {
  std::vector<int64_t> starts = {0};
  for (int64_t g = 0; g < shape.sequences; ++g)
    starts.push_back(starts.back() +
                     (shape.lengths.empty()
                          ? shape.tokens
                          : shape.lengths[static_cast<size_t>(g)]));
  return starts;
}

std::vector<int64_t> tilesOf(const BenchShape &shape) {
  std::vector<int64_t> starts = startsOf(shape), tiles;
  for (int64_t g = 0; g < shape.sequences; ++g)
    for (int64_t first = starts[g]; first < starts[g + 1]; first += matmulRows)
      tiles.insert(tiles.end(), {g, first});
  return tiles;
}

/// Choice of an entry: far from its neighbours', each once where the prime does
/// not divide their number.
int64_t choiceOf(const BenchShape &shape, int64_t entry) {
  constexpr int64_t prime = 1000003;
  return entry * prime % std::max<int64_t>(1, shape.allTokens());
}

int64_t groupOf(const BenchShape &shape, int64_t entry) {
  std::vector<int64_t> starts = startsOf(shape);
  return std::upper_bound(starts.begin(), starts.end(), entry) -
         starts.begin() - 1;
}

} // namespace

int64_t matmulSize(const Variant &v, const BenchShape &shape,
                   const std::string &name) {
  int64_t entries = shape.allTokens();
  int64_t each = hasOrder(v, shape) ? choices : 1;
  for (auto [size, value] :
       {std::pair("T", entries),
        {"D", shape.heads},
        {"E", shape.valueHeads},
        {"R", (entries + each - 1) / each},
        {"G", shape.sequences},
        {"tile_count", static_cast<int64_t>(tilesOf(shape).size()) / 2},
        {"each", each},
        {"x_stride", shape.heads},
        {"out_stride", shape.valueHeads},
        {"sums_stride", shape.valueHeads}})
    if (name == size)
      return value;
  return 0;
}

int64_t matmulElements(const Variant &v, const BenchShape &shape,
                       const std::string &name) {
  auto size = [&](const char *of) { return matmulSize(v, shape, of); };
  if (name == "x")
    return size("R") * size("D");
  if (name == "weights" || name == "up")
    return size("G") * size("E") * size("D");
  if (name == "tiles")
    return isGrouped(shape) ? 2 * size("tile_count") : 0;
  if (name == "starts")
    return isGrouped(shape) ? size("G") + 1 : 0;
  if (name == "order")
    return hasOrder(v, shape) ? size("T") : 0;
  return name == "out" ? size("T") * size("E") : 0; // no sums
}

std::vector<int64_t> matmulIntegers(const Variant &v, const BenchShape &shape,
                                    const std::string &name) {
  if (name == "tiles")
    return tilesOf(shape);
  if (name == "starts")
    return startsOf(shape);
  std::vector<int64_t> order;
  for (int64_t entry = 0; entry < matmulSize(v, shape, "T"); ++entry)
    order.push_back(choiceOf(shape, entry));
  return order;
}

std::vector<int64_t> matmulEntries(const BenchShape &shape) {
  constexpr int64_t some = 67;
  std::vector<int64_t> entries;
  int64_t all = shape.allTokens(), count = std::min(all, some);
  for (int64_t i = 0; i < count; ++i)
    entries.push_back(count > 1 ? i * (all - 1) / (count - 1) : 0);
  return entries;
}

/// Every entry is a group of its own with the weights of its group.
reference::MatmulOperands matmulOperands(const Variant &v,
                                         const BenchShape &shape,
                                         Patterns &patterns,
                                         const std::vector<int64_t> &entries) {
  int64_t width = shape.heads, columns = shape.valueHeads;
  reference::MatmulOperands o;
  o.entries = o.rows = o.groups = static_cast<int64_t>(entries.size());
  o.width = width;
  o.columns = columns;
  o.kind = v.rows;
  o.beta = reference::usualScale("beta");
  o.linear = reference::usualScale("linear");
  for (int64_t i = 0; i < o.entries; ++i) {
    o.tiles.insert(o.tiles.end(), {i, i});
    o.starts.push_back(i);
  }
  o.starts.push_back(o.entries);
  auto rowsOf = [&](const char *name,
                    std::vector<int64_t> numbers) -> reference::Rows {
    for (const Arg &arg : kernelArgs(v))
      if (arg.name == name)
        return [&pattern = patterns.of(v, arg), numbers = std::move(numbers),
                width](int64_t row, int64_t, double *x) {
          int64_t first = numbers[static_cast<size_t>(row)] * width;
          for (int64_t d = 0; d < width; ++d)
            x[d] = pattern.at(first + d);
        };
    std::abort(); // not a kernel of form matmul
  };
  std::vector<int64_t> rows, lines;
  for (int64_t entry : entries) {
    rows.push_back(hasOrder(v, shape) ? choiceOf(shape, entry) / choices
                                      : entry);
    for (int64_t c = 0; c < columns; ++c)
      lines.push_back(groupOf(shape, entry) * columns + c);
  }
  o.x = rowsOf("x", rows);
  o.weights = rowsOf("weights", lines);
  if (v.rows != RowOp::None)
    o.up = rowsOf("up", lines);
  return o;
}

} // namespace kdac::selftest
