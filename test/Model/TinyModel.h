// Promises: the tiny checkpoints that python/tiny_checkpoint.py made, loaded,
// with what the f64 reference expects of them. Does not: make them.
#ifndef KDAC_TEST_MODEL_TINYMODEL_H
#define KDAC_TEST_MODEL_TINYMODEL_H

#include "kdac/Model/Forward.h"
#include "kdac/Model/GpuOps.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace kdac::model {

/// One prompt of expected.json.
struct Expected {
  std::vector<int32_t> prompt, greedy;
  std::vector<std::vector<double>> logits; ///< [greedy, vocab]
  /// Of the second prompt, in KDA layer `cachedLayer` behind it: the first
  /// head's state, and the inputs of the first channels' convolution of q,
  /// oldest first.
  std::vector<std::vector<double>> state; ///< [V, K]
  std::vector<std::vector<double>> conv;  ///< [some of P, W]
  /// Its logits with `otherEps` in all norms but KDA's output norm.
  std::vector<double> otherEpsLogits; ///< [vocab]
};
constexpr int64_t cachedLayer = 2;
constexpr double otherEps = 0.1;

/// A loaded model; the program ends where there is none to test.
class TinyModel {
public:
  /// `kind` is 48b, k3 or wide, on the host; with @f32 or @bf16 behind it on a
  /// GPU, the PTX emulator's unless KDAC_TEST_DRIVER names another driver.
  explicit TinyModel(const std::string &kind, int64_t slots = 6,
                     int64_t batchTokens = 128);

  /// Logits of the last row of `tokens` in `slot`.
  std::vector<float> run(int32_t slot, const std::vector<int32_t> &tokens);
  std::vector<float> run(int32_t slot, const int32_t *tokens, int64_t count);
  int32_t open();
  /// Row `i` of a call's logits.
  std::vector<float> row(Rows logits, int64_t i) const;
  /// How far logits may be from the f64 reference's.
  double tolerance() const;

  Element element = Element::F32;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  Weights weights;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Session> session;
  std::vector<Expected> expected;

private:
  void load(const std::string &kind, int64_t slots, int64_t batchTokens);
  void makeHost(const SessionLimits &limits);
  void makeGpu(const SessionLimits &limits);
};

/// The folder of a tiny checkpoint; what follows an @ does not count.
std::string tinyFolder(const std::string &kind);

/// `info`'s parameter as gtest takes it in a name.
inline std::string testName(std::string parameter) {
  std::replace(parameter.begin(), parameter.end(), '@', '_');
  return parameter;
}

/// The relative Frobenius distance of two rows of logits.
template <typename Other>
double distance(const std::vector<float> &got, const std::vector<Other> &want) {
  if (got.size() != want.size())
    return INFINITY;
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double w = static_cast<double>(want[i]), d = got[i] - w;
    error += d * d;
    norm += w * w;
  }
  return std::sqrt(error / norm);
}

inline int32_t best(const std::vector<float> &logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

} // namespace kdac::model

#endif // KDAC_TEST_MODEL_TINYMODEL_H
