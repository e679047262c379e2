// Mixture of experts on the host. hybrid-model.md 1.6.
#include "HostOps.h"
#include "Lanes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kdac::model {

namespace {

/// The indices of the `count` largest values, the first of equals first.
void largest(const float *values, int64_t n, int64_t count, int32_t *indices) {
  std::vector<int32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  std::partial_sort(
      all.begin(), all.begin() + count, all.end(), [&](int32_t a, int32_t b) {
        return values[a] != values[b] ? values[a] > values[b] : a < b;
      });
  std::copy_n(all.begin(), count, indices);
}

/// Experts outside of the best groups cannot be chosen; a group counts as the
/// sum of its two best.
void keepGroups(std::vector<float> &choice, int64_t groups, int64_t kept) {
  int64_t size = static_cast<int64_t>(choice.size()) / groups;
  std::vector<float> score(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    int32_t best[2] = {};
    const float *group = choice.data() + g * size;
    int64_t count = std::min<int64_t>(2, size);
    largest(group, size, count, best);
    score[static_cast<size_t>(g)] =
        group[best[0]] + (count > 1 ? group[best[1]] : 0);
  }
  std::vector<int32_t> good(static_cast<size_t>(kept));
  largest(score.data(), groups, kept, good.data());
  for (int64_t g = 0; g < groups; ++g)
    if (std::find(good.begin(), good.end(), g) == good.end())
      std::fill_n(choice.begin() + g * size, size, -INFINITY);
}

} // namespace

void HostOps::routeRow(float *scores, const Vector &bias, int32_t *expert,
                       float *weight) const {
  std::vector<float> choice(bias.size());
  for (size_t e = 0; e < bias.size(); ++e) {
    scores[e] = sigmoid(scores[e]);
    choice[e] = scores[e] + bias[e];
    if (std::isnan(choice[e])) // sorting needs an order
      choice[e] = -INFINITY;
  }
  if (config.groups > 1)
    keepGroups(choice, config.groups, config.topGroups);
  largest(choice.data(), config.experts, config.topK, expert);
  float sum = 0;
  for (int64_t j = 0; j < config.topK; ++j)
    sum += weight[j] = scores[expert[j]];
  auto factor = static_cast<float>(config.routedScale);
  if (config.renormalise && config.topK > 1)
    factor /= sum + 1e-20f;
  for (int64_t j = 0; j < config.topK; ++j)
    weight[j] *= factor;
}

void HostOps::route(Rows logits, const Vector &bias, const Routing &to) {
  parallel(logits.rows, [&](int64_t i, float *) {
    routeRow(logits.row(i), bias, to.expert + i * to.topK,
             to.weight + i * to.topK);
  });
}

/// One expert on the rows that chose it; `entries` index the routing.
void HostOps::runExpert(Rows x, const Routing &routing, const MlpWeights &w,
                        const int32_t *entries, int64_t count, Rows y) {
  Rows in = {gathered.floats(), count, x.width, paddedWidth(x.width)};
  int64_t width = config.expertWidth;
  Rows gate = {gates.floats(), count, width, paddedWidth(width)};
  Rows up = {ups.floats(), count, width, paddedWidth(width)};
  parallel(count, [&](int64_t i, float *) {
    std::copy_n(x.row(entries[i] / routing.topK), x.width, in.row(i));
  });
  matmul(in, w.gate, gate);
  matmul(in, w.up, up);
  activate(gate, up, gate);
  matmul(gate, w.down, in);
  parallel(count, [&](int64_t i, float *) {
    axpy(routing.weight[entries[i]], in.row(i),
         y.row(entries[i] / routing.topK), y.width);
  });
}

void HostOps::experts(Rows x, const Routing &routing, const MoeWeights &w,
                      Rows y) {
  if (!fits(x.rows))
    return;
  int64_t entries = x.rows * routing.topK;
  std::fill(starts.begin(), starts.end(), 0);
  for (int64_t i = 0; i < entries; ++i)
    ++starts[static_cast<size_t>(routing.expert[i]) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<int64_t> next(starts.begin(), starts.end() - 1);
  for (int64_t i = 0; i < entries; ++i)
    order[static_cast<size_t>(next[static_cast<size_t>(routing.expert[i])]++)] =
        static_cast<int32_t>(i);
  parallel(y.rows,
           [&](int64_t i, float *) { std::fill_n(y.row(i), y.width, 0.0f); });
  for (size_t e = 0; e < w.experts.size(); ++e)
    if (int64_t count = starts[e + 1] - starts[e]; count > 0)
      runExpert(x, routing, w.experts[e], order.data() + starts[e], count, y);
}

} // namespace kdac::model
