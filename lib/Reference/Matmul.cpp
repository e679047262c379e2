#include "kdac/Reference/Matmul.h"
#include "kdac/Reference/Parallel.h"
#include "kdac/Reference/RowOps.h"

#include <algorithm>

namespace kdac::reference {

namespace {

/// The row of x that an entry has: the nearest one.
int64_t rowOf(const MatmulOperands &o, int64_t entry) {
  int64_t row =
      o.order.empty() ? entry : o.order[static_cast<size_t>(entry)] / o.each;
  return std::max<int64_t>(0, std::min(row, o.rows - 1));
}

/// The group of every entry, -1: no tile has it.
std::vector<int64_t> groupsOf(const MatmulOperands &o) {
  if (o.tiles.empty())
    return std::vector<int64_t>(static_cast<size_t>(o.entries), 0);
  std::vector<int64_t> groups(static_cast<size_t>(o.entries), -1);
  for (size_t i = 0; i + 1 < o.tiles.size(); i += 2) {
    int64_t group = o.tiles[i], first = o.tiles[i + 1];
    if (group < 0 || group >= o.groups || first < 0)
      continue;
    int64_t end = std::min({o.starts[static_cast<size_t>(group) + 1], o.entries,
                            first + matmulRows});
    for (int64_t entry = first; entry < end; ++entry)
      groups[static_cast<size_t>(entry)] = group;
  }
  return groups;
}

} // namespace

Results runMatmul(const MatmulOperands &o, int threads) {
  Results results;
  results.out.resize(static_cast<size_t>(o.entries * o.columns));
  std::vector<int64_t> groups = groupsOf(o);
  parallelFor(
      o.entries,
      [&](int64_t entry) {
        int64_t group = groups[static_cast<size_t>(entry)];
        if (group < 0)
          return;
        auto width = static_cast<size_t>(o.width);
        std::vector<double> row(width), line(width);
        if (o.rows > 0)
          o.x(rowOf(o, entry), 0, row.data());
        auto product = [&](const Rows &weights, int64_t column) {
          weights(group * o.columns + column, 0, line.data());
          double sum = 0.0;
          for (size_t d = 0; d < width; ++d)
            sum += row[d] * line[d];
          return sum;
        };
        for (int64_t c = 0; c < o.columns; ++c) {
          double sum = product(o.weights, c);
          if (o.kind != RowOp::None)
            sum = gatedProduct(o.kind, sum, product(o.up, c), o.beta, o.linear);
          results.out[static_cast<size_t>(entry * o.columns + c)] = sum;
        }
      },
      threads);
  return results;
}

} // namespace kdac::reference
