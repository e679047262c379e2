// The neighbours of the recurrence: l2norm, log_decay, write_strength.
#include "kdac/Reference/Reference.h"

#include <cmath>

namespace kdac::reference {

namespace {

double sigmoid(double x) {
  if (x >= 0.0)
    return 1.0 / (1.0 + std::exp(-x));
  double e = std::exp(x);
  return e / (1.0 + e);
}

/// log(1 + e^x), with its tail: e^x for very negative x, x for large x.
double softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

/// rate * x, and 0 where x is 0 even if the rate has overflowed.
double scaled(double rate, double x) { return x == 0.0 ? 0.0 : rate * x; }

double mapLogit(const GateMap &map, double rate, double x) {
  if (map.gate == Gate::Softplus)
    return -scaled(rate, softplus(x));
  if (map.gate == Gate::Bounded)
    return map.bound * sigmoid(scaled(rate, x));
  return x;
}

} // namespace

Rows l2norm(Rows x, int64_t width, double eps) {
  return
      [x = std::move(x), width, eps](int64_t token, int64_t head, double *row) {
        x(token, head, row);
        double sum = 0.0;
        for (int64_t c = 0; c < width; ++c)
          sum += row[c] * row[c];
        if (sum == 0.0)
          return; // a zero vector gives zeros whatever eps is
        double factor = 1.0 / std::sqrt(sum + eps);
        for (int64_t c = 0; c < width; ++c)
          row[c] *= factor;
      };
}

Rows logDecay(GateMap map, Rows logits, int64_t width) {
  return [map = std::move(map), logits = std::move(logits),
          width](int64_t token, int64_t head, double *row) {
    logits(token, head, row);
    double aLog = 0.0;
    if (map.aLog)
      map.aLog(0, head, &aLog);
    std::vector<double> bias(static_cast<size_t>(width), 0.0);
    if (map.dtBias)
      map.dtBias(0, head, bias.data());
    double rate = std::exp(aLog);
    for (int64_t c = 0; c < width; ++c)
      row[c] = mapLogit(map, rate, row[c] + bias[static_cast<size_t>(c)]);
  };
}

Rows writeStrength(Beta map, Rows logits) {
  return [map, logits = std::move(logits)](int64_t token, int64_t head,
                                           double *row) {
    logits(token, head, row);
    if (map == Beta::Sigmoid)
      *row = sigmoid(*row);
    else if (map == Beta::TwoSigmoid)
      *row = 2.0 * sigmoid(*row);
  };
}

} // namespace kdac::reference
