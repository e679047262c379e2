#include "kdac/Model/Sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kdac::model {

namespace {

/// NaN sorts below everything.
float ordered(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

/// The tokens from the best on, sorted no further than somebody asks: sorting a
/// whole vocabulary takes longer than a GPU's token.
class Ranked {
public:
  Ranked(const float *logits, int64_t count)
      : logits(logits), order(static_cast<size_t>(count)) {
    std::iota(order.begin(), order.end(), 0);
  }
  int32_t best() const {
    return *std::min_element(
        order.begin(), order.end(),
        [&](int32_t a, int32_t b) { return isBetter(a, b); });
  }
  int32_t operator[](size_t i) {
    while (i >= sorted)
      sortMore();
    return order[i];
  }

private:
  bool isBetter(int32_t a, int32_t b) const {
    float x = ordered(logits[a]), y = ordered(logits[b]);
    return x != y ? x > y : a < b;
  }
  void sortMore() {
    constexpr size_t first = 64, factor = 8;
    size_t more =
        std::min(order.size() - sorted, sorted == 0 ? first : sorted * factor);
    auto from = order.begin() + static_cast<long>(sorted);
    auto to = from + static_cast<long>(more);
    auto better = [&](int32_t a, int32_t b) { return isBetter(a, b); };
    if (sorted == 0) { // few of many: most are only compared once
      std::partial_sort(from, to, order.end(), better);
    } else {
      if (to != order.end())
        std::nth_element(from, to, order.end(), better);
      std::sort(from, to, better);
    }
    sorted += more;
  }

  const float *logits;
  std::vector<int32_t> order;
  size_t sorted = 0;
};

} // namespace

Status checkSampler(const SamplerOptions &options) {
  auto refuse = [](const std::string &message) {
    return Status(ErrorCode::InvalidArgument, message);
  };
  if (!(options.temperature >= 0 && options.temperature <= 100))
    return refuse("temperature " + std::to_string(options.temperature) +
                  " should be from 0 to 100");
  if (!(options.topP > 0 && options.topP <= 1))
    return refuse("top-p " + std::to_string(options.topP) +
                  " should be above 0 and at most 1");
  if (options.topK < 0)
    return refuse("top-k " + std::to_string(options.topK) +
                  " should not be negative");
  return Status::success();
}

/// SplitMix64: small, and defined by its arithmetic alone.
double Sampler::uniform() {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int32_t Sampler::pick(const float *logits, int64_t count) {
  Ranked ranked(logits, count);
  int32_t best = ranked.best();
  if (options.temperature == 0)
    return best;
  double largest = ordered(logits[best]);
  auto weight = [&](int32_t token) {
    double gap = ordered(logits[token]) - largest; // infinities may meet
    return std::isnan(gap) ? 1 : std::exp(gap / options.temperature);
  };
  auto limit = static_cast<size_t>(count);
  double total = 0;
  if (options.topK > 0 && options.topK < count) {
    limit = static_cast<size_t>(options.topK);
    for (size_t i = 0; i < limit; ++i)
      total += weight(ranked[i]);
  } else {
    for (int32_t token = 0; token < count; ++token)
      total += weight(token);
  }
  double kept = total;
  if (options.topP < 1) {
    size_t size = 0;
    kept = 0;
    while (size < limit && (size == 0 || kept < options.topP * total))
      kept += weight(ranked[size++]);
    limit = size;
  }
  double draw = uniform() * kept;
  for (size_t i = 0; i < limit; ++i) {
    double step = weight(ranked[i]);
    if (step > 0) // what has no weight is not left over from rounding
      best = ranked[i];
    if (step <= 0 || (draw -= step) < 0)
      return best;
  }
  return best;
}

} // namespace kdac::model
