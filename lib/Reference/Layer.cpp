// The parts of a layer around the recurrence: short_conv and gated_rmsnorm.
#include "kdac/Reference/Reference.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

} // namespace

Rows shortConv(ShortConv conv) {
  return [conv = std::move(conv)](int64_t token, int64_t head, double *row) {
    // The sequence that owns the token; tokens of none have no history.
    auto next =
        std::upper_bound(conv.offsets.begin(), conv.offsets.end(), token);
    auto sequence = static_cast<int64_t>(next - conv.offsets.begin()) - 1;
    int64_t first = sequence < 0 ? 0 : conv.offsets[sequence];
    std::vector<double> x(static_cast<size_t>(conv.width));
    std::vector<double> weight(static_cast<size_t>(conv.width * conv.taps));
    conv.weight(0, head, weight.data());
    std::vector<double> sum(static_cast<size_t>(conv.width), 0.0);
    for (int64_t back = 0; back < conv.taps; ++back) {
      int64_t from = token - back;
      std::fill(x.begin(), x.end(), 0.0);
      if (from >= first)
        conv.input(from, head, x.data());
      else if (conv.before)
        conv.before(sequence, head, first - from, x.data());
      for (int64_t c = 0; c < conv.width; ++c)
        sum[c] += weight[c * conv.taps + conv.taps - 1 - back] * x[c];
    }
    for (int64_t c = 0; c < conv.width; ++c)
      row[c] = sum[c] * sigmoid(sum[c]);
  };
}

void gateRow(const GatedNorm &norm, int64_t token, int64_t head, double *row,
             int64_t width) {
  if (norm.activation == OutputNorm::None)
    return;
  std::vector<double> gate(static_cast<size_t>(width)), weight(gate.size());
  norm.gate(token, head, gate.data());
  norm.weight(0, 0, weight.data());
  double sum = 0.0;
  for (int64_t c = 0; c < width; ++c)
    sum += row[c] * row[c];
  double inverse = 1.0 / std::sqrt(sum / static_cast<double>(width) + norm.eps);
  for (int64_t c = 0; c < width; ++c) {
    double open = sigmoid(gate[c]);
    if (norm.activation == OutputNorm::Silu)
      open *= gate[c];
    row[c] *= inverse * weight[c] * open;
  }
}

} // namespace kdac::reference
