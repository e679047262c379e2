#include "kdac/Reference/RowOps.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

namespace {

using Vector = std::vector<double>;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Row `number` of `rows`, zeros where it is absent.
Vector rowOf(const Rows &rows, int64_t number, int64_t width) {
  Vector row(static_cast<size_t>(width), 0.0);
  if (rows)
    rows(number, 0, row.data());
  return row;
}

/// 1 / sqrt(mean(s²) + eps).
double inverseRoot(const Vector &s, double eps) {
  double squares = 0.0;
  for (double x : s)
    squares += x * x;
  return 1.0 / std::sqrt(squares / static_cast<double>(s.size()) + eps);
}

/// y = s / sqrt(mean(s²) + eps) weight.
void normalise(const RowOperands &o, const Vector &s, double *out) {
  Vector weight = rowOf(o.weight, 0, static_cast<int64_t>(s.size()));
  double inverse = inverseRoot(s, o.eps);
  for (size_t c = 0; c < s.size(); ++c)
    out[c] = s[c] * inverse * weight[c];
}

/// The softmax of scores, times the rows that have them.
void mixRow(const RowOperands &o, int64_t t, double *out) {
  Vector query = rowOf(o.query, 0, o.width), scores;
  std::vector<Vector> rows;
  for (int64_t j = 0; j < o.entries; ++j) {
    rows.push_back(rowOf(o.x, j * o.sources + t, o.width));
    double dot = 0.0;
    for (size_t c = 0; c < query.size(); ++c)
      dot += rows.back()[c] * query[c];
    scores.push_back(dot * inverseRoot(rows.back(), o.eps));
  }
  double largest = *std::max_element(scores.begin(), scores.end()), total = 0;
  for (double &score : scores)
    total += score = std::exp(score - largest);
  std::fill_n(out, o.width, 0.0);
  for (size_t j = 0; j < rows.size(); ++j)
    for (size_t c = 0; c < query.size(); ++c)
      out[c] += scores[j] / total * rows[j][c];
}

/// The row at its place: the front normalised.
void placeRow(const RowOperands &o, int64_t t, std::vector<double> &out) {
  int64_t place = o.place[static_cast<size_t>(t)];
  if (place < 0)
    return;
  Vector row = rowOf(o.x, t, o.width);
  double *to = out.data() + place * o.width;
  std::copy(row.begin(), row.end(), to);
  row.resize(static_cast<size_t>(o.rank));
  normalise(o, row, to);
}

/// The row that entry `entry` of the indices names.
Vector picked(const RowOperands &o, int64_t entry) {
  int64_t from = o.index.empty() ? entry : o.index[entry];
  from = std::max<int64_t>(0, std::min(from, o.sources - 1));
  return rowOf(o.sources ? o.x : Rows(), from, o.width);
}

void runRow(const RowOperands &o, int64_t t, double *out, double *sum) {
  if (picksRows(o.op)) {
    std::fill_n(out, o.width, 0.0);
    Vector scales = rowOf(o.scales, t, o.entries);
    for (int64_t j = 0; j < o.entries; ++j) {
      Vector row = picked(o, t * o.entries + j);
      double scale = o.scales ? scales[j] : 1.0;
      for (size_t c = 0; c < row.size(); ++c)
        out[c] += scale * row[c];
    }
    return;
  }
  if (o.op == RowOp::Mix)
    return mixRow(o, t, out);
  bool isProduct = static_cast<bool>(o.gate);
  Vector a = rowOf(isProduct ? o.gate : o.x, t, o.width);
  Vector b = rowOf(isProduct ? o.up : o.branch, t, o.width);
  for (size_t c = 0; c < a.size(); ++c)
    out[c] = isProduct ? gatedProduct(o.op, a[c], b[c], o.beta, o.linear)
                       : a[c] + b[c];
  if (o.op != RowOp::Norm)
    return;
  std::copy_n(out, o.width, sum);
  normalise(o, Vector(sum, sum + o.width), out);
}

} // namespace

double gatedProduct(RowOp op, double gate, double up, double beta,
                    double linear) {
  if (op == RowOp::Silu)
    return gate * sigmoid(gate) * up;
  if (op == RowOp::Sigmoid)
    return sigmoid(gate) * up;
  return beta * std::tanh(gate / beta) * sigmoid(gate) * linear *
         std::tanh(up / linear);
}

Results runRows(const RowOperands &o) {
  Results results;
  if (o.op == RowOp::Latent) {
    results.out.resize(static_cast<size_t>(o.places * o.width));
    for (int64_t t = 0; t < o.tokens; ++t)
      placeRow(o, t, results.out);
    return results;
  }
  auto size = static_cast<size_t>(o.tokens * o.width);
  results.out.resize(size);
  if (o.op == RowOp::Norm)
    results.finalState.resize(size);
  parallelFor(o.tokens, [&](int64_t t) {
    runRow(o, t, results.out.data() + t * o.width,
           results.finalState.data() +
               (results.finalState.empty() ? 0 : t * o.width));
  });
  return results;
}

int64_t longestRow(const Variant &variant) {
  bool isLatent = variant.rows == RowOp::Latent;
  return variant.width + (isLatent ? variant.width / 8 : 0);
}

float usualScale(std::string_view name) {
  return name == "eps"    ? 1e-5f
         : name == "beta" ? 4.0f
                          : 25.0f; // linear: hybrid-model.md 2.2
}

} // namespace kdac::reference
