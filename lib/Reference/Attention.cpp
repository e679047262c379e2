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

namespace {

/// One row of a prompt and one head, whose keys are `first` .. `end`.
void attendRow(const PromptOperands &o, int64_t row, int64_t head,
               int64_t first, int64_t end, double *out, double *log) {
  constexpr double lowest = std::numeric_limits<float>::lowest();
  int64_t own = o.width - o.sharedWidth;
  Vector query(static_cast<size_t>(o.width));
  Vector expanded(static_cast<size_t>(own + o.values));
  Vector shared(static_cast<size_t>(o.sharedWidth)), scores;
  o.q(row, head, query.data());
  for (int64_t key = first; key < end; ++key) {
    o.kv(key, head, expanded.data());
    if (o.sharedWidth > 0)
      o.shared(key, 0, shared.data());
    double score = 0.0;
    for (int64_t d = 0; d < o.width; ++d)
      score += query[d] * (d < own ? expanded[d] : shared[d - own]);
    scores.push_back(o.scale * score / std::log(2.0));
  }
  double before = lowest;
  std::fill_n(out, o.values, 0.0);
  if (o.before) {
    o.before(row, head, out);
    o.beforeLogs(row, head, &before);
  }
  double top = before;
  for (double score : scores)
    top = std::max(top, score);
  double total = o.before ? std::exp2(before - top) : 0.0;
  for (int64_t c = 0; c < o.values; ++c)
    out[c] *= total;
  for (size_t j = 0; j < scores.size(); ++j) {
    o.kv(first + static_cast<int64_t>(j), head, expanded.data());
    double weight = std::exp2(scores[j] - top);
    total += weight;
    for (int64_t c = 0; c < o.values; ++c)
      out[c] += weight * expanded[own + c];
  }
  for (int64_t c = 0; c < o.values && total > 0.0; ++c)
    out[c] /= total;
  *log = total > 0.0 ? top + std::log2(total) : lowest;
}

} // namespace

Results runPrompt(const PromptOperands &o, int threads) {
  Results results;
  int64_t rows = o.offsets.back();
  results.out.resize(static_cast<size_t>(rows * o.heads * o.values));
  results.logs.resize(static_cast<size_t>(rows * o.heads));
  parallelFor(
      rows * o.heads,
      [&](int64_t i) {
        int64_t row = i / o.heads, n = 0;
        while (o.offsets[n + 1] <= row)
          ++n;
        int64_t first = o.keyOffsets[n], end = o.keyOffsets[n + 1];
        // The last row's own is the last of all keys.
        int64_t behind = o.offsets[n + 1] - 1 - row;
        int64_t seen = std::clamp(end + o.later - behind, first, end);
        attendRow(o, row, i % o.heads, first, seen,
                  results.out.data() + i * o.values, results.logs.data() + i);
      },
      threads);
  return results;
}

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
