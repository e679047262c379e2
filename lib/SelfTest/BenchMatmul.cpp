#include "BenchMatmul.h"

#include "kdac/Reference/RowOps.h"

#include <algorithm>

namespace kdac::selftest {

constexpr int64_t choices = 8; ///< experts of a row

std::vector<int64_t> BenchMatmul::tiles() const {
  std::vector<int64_t> starts = shape.bounds(), tiles;
  for (int64_t g = 0; g < shape.sequences; ++g)
    for (int64_t first = starts[g]; first < starts[g + 1]; first += matmulRows)
      tiles.insert(tiles.end(), {g, first});
  return tiles;
}

/// Choice of an entry: far from its neighbours', each once where the prime does
/// not divide their number.
int64_t BenchMatmul::choiceOf(int64_t entry) const {
  constexpr int64_t prime = 1000003;
  return entry * prime % std::max<int64_t>(1, shape.allTokens());
}

int64_t BenchMatmul::size(const std::string &name) const {
  int64_t entries = shape.allTokens();
  int64_t each = hasOrder() ? choices : 1;
  for (auto [size, value] :
       {std::pair("T", entries),
        {"tokens", entries},
        {"D", shape.heads},
        {"E", shape.valueHeads},
        {"R", (entries + each - 1) / each},
        {"G", shape.sequences},
        {"tile_count", static_cast<int64_t>(tiles().size()) / 2},
        {"each", each},
        {"x_stride", shape.heads},
        {"out_stride", shape.valueHeads},
        {"sums_stride", shape.valueHeads}})
    if (name == size)
      return value;
  return 0;
}

int64_t BenchMatmul::elements(const Arg &tensor) const {
  const std::string &name = tensor.name;
  if (name == "starts")
    return isGrouped() ? size("G") + 1 : 0;
  bool isAbsent = name == "sums" || (name == "tiles" && !isGrouped()) ||
                  (name == "order" && !hasOrder());
  return isAbsent ? 0 : product(tensor.shape);
}

std::vector<int64_t> BenchMatmul::integers(const Arg &tensor) const {
  if (tensor.name == "tiles")
    return tiles();
  if (tensor.name == "starts")
    return shape.bounds();
  std::vector<int64_t> order;
  for (int64_t entry = 0; entry < size("T"); ++entry)
    order.push_back(choiceOf(entry));
  return order;
}

std::vector<int64_t> BenchMatmul::sampledEntries() const {
  constexpr int64_t some = 67;
  std::vector<int64_t> entries;
  int64_t all = shape.allTokens(), count = std::min(all, some);
  for (int64_t i = 0; i < count; ++i)
    entries.push_back(count > 1 ? i * (all - 1) / (count - 1) : 0);
  return entries;
}

/// Every entry is a group of its own with the weights of its group.
reference::MatmulOperands
BenchMatmul::operands(Patterns &patterns,
                      const std::vector<int64_t> &entries) const {
  int64_t width = shape.heads, columns = shape.valueHeads;
  reference::MatmulOperands o;
  o.entries = o.rows = o.groups = static_cast<int64_t>(entries.size());
  o.width = width;
  o.columns = columns;
  o.kind = v.rows;
  o.beta = scale("beta");
  o.linear = scale("linear");
  std::vector<int64_t> rows, lines, starts = shape.bounds();
  for (int64_t i = 0; i < o.entries; ++i) {
    o.tiles.insert(o.tiles.end(), {i, i});
    o.starts.push_back(i);
    int64_t entry = entries[static_cast<size_t>(i)];
    rows.push_back(hasOrder() ? choiceOf(entry) / choices : entry);
    int64_t group = std::upper_bound(starts.begin(), starts.end(), entry) -
                    starts.begin() - 1;
    for (int64_t c = 0; c < columns; ++c)
      lines.push_back(group * columns + c);
  }
  o.starts.push_back(o.entries);
  o.x = rowsOf(patterns.of(v, "x"), width, width, {}, rows);
  o.weights = rowsOf(patterns.of(v, "weights"), width, width, {}, lines);
  if (v.rows != RowOp::None)
    o.up = rowsOf(patterns.of(v, "up"), width, width, {}, lines);
  return o;
}

} // namespace kdac::selftest
