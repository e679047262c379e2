#include "kdac/Reference/Attention.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kdac::reference {

namespace {

using Vector = std::vector<double>;

/// Where the cached rows of a sequence that exist are among all pages' rows.
std::vector<int64_t> keysOf(const AttentionOperands &o, int64_t sequence) {
  std::vector<int64_t> keys;
  int64_t slot = o.slots.empty() ? sequence : o.slots[sequence];
  if (slot < 0 || slot >= o.slotCount)
    return keys;
  for (int64_t j = 0; j < o.lengths[sequence]; ++j) {
    int64_t entry = j / o.pageRows;
    if (entry >= o.tablePitch)
      break;
    int64_t page = o.table[slot * o.tablePitch + entry];
    if (page >= 0 && page < o.pageCount)
      keys.push_back(page * o.pageRows + j % o.pageRows);
  }
  return keys;
}

void attendHead(const AttentionOperands &o, const std::vector<int64_t> &keys,
                const Vector &query, double *out) {
  Vector row(static_cast<size_t>(o.width)), scores;
  double largest = -std::numeric_limits<double>::infinity(), total = 0.0;
  for (int64_t key : keys) {
    o.pages(key, 0, row.data());
    double score = 0.0;
    for (size_t d = 0; d < row.size(); ++d)
      score += query[d] * row[d];
    scores.push_back(o.scale * score);
    largest = std::max(largest, scores.back());
  }
  std::fill_n(out, o.values, 0.0);
  for (size_t j = 0; j < keys.size(); ++j) {
    o.pages(keys[j], 0, row.data());
    double weight = std::exp(scores[j] - largest);
    total += weight;
    for (int64_t c = 0; c < o.values; ++c)
      out[c] += weight * row[c];
  }
  for (int64_t c = 0; c < o.values && !keys.empty(); ++c)
    out[c] /= total;
}

} // namespace

Results runAttention(const AttentionOperands &o, int threads) {
  Results results;
  results.out.resize(static_cast<size_t>(o.sequences * o.heads * o.values));
  std::vector<std::vector<int64_t>> keys;
  for (int64_t n = 0; n < o.sequences; ++n)
    keys.push_back(keysOf(o, n));
  parallelFor(
      o.sequences * o.heads,
      [&](int64_t i) {
        int64_t n = i / o.heads;
        Vector query(static_cast<size_t>(o.width));
        o.q(n, i % o.heads, query.data());
        attendHead(o, keys[n], query, results.out.data() + i * o.values);
      },
      threads);
  return results;
}

} // namespace kdac::reference
