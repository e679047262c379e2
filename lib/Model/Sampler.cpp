#include "kdac/Model/Sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kdac::model {

namespace {

/// NaN sorts below everything.
float ordered(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

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
  auto isBetter = [&](int32_t a, int32_t b) {
    float x = ordered(logits[a]), y = ordered(logits[b]);
    return x != y ? x > y : a < b;
  };
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  auto best = std::min_element(order.begin(), order.end(), isBetter);
  if (options.temperature == 0)
    return *best;
  bool hasLimit = options.topK > 0 && options.topK < count;
  auto end = hasLimit ? order.begin() + options.topK : order.end();
  std::partial_sort(order.begin(), end, order.end(), isBetter);
  order.erase(end, order.end());
  std::vector<double> weights;
  double largest = ordered(logits[order[0]]), total = 0;
  for (int32_t token : order) {
    double gap = ordered(logits[token]) - largest; // infinities may meet
    weights.push_back(std::isnan(gap) ? 1
                                      : std::exp(gap / options.temperature));
    total += weights.back();
  }
  double kept = 0;
  size_t size = 0;
  while (size < weights.size() && (size == 0 || kept < options.topP * total))
    kept += weights[size++];
  double draw = uniform() * kept;
  for (size_t i = 0; i < size; ++i)
    if ((draw -= weights[i]) < 0)
      return order[i];
  return order[size - 1];
}

} // namespace kdac::model
