// Choosing tokens.
#include "kdac/Model/Sampler.h"

#include "gtest/gtest.h"

#include <cmath>
#include <map>
#include <vector>

using namespace kdac;
using namespace kdac::model;

namespace {

const std::vector<float> logits = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f};

std::map<int32_t, int> draw(const SamplerOptions &options, int count = 20000) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i)
    ++counts[sampler.pick(logits.data(), 5)];
  return counts;
}

} // namespace

TEST(Sampler, GreedyTakesTheFirstBest) {
  EXPECT_EQ(draw({}), (std::map<int32_t, int>{{1, 20000}}));
  const float odd[] = {NAN, -INFINITY, 3, INFINITY, NAN};
  EXPECT_EQ(Sampler({}).pick(odd, 5), 3);
  const float none[] = {NAN, NAN};
  EXPECT_EQ(Sampler({}).pick(none, 2), 0);
}

TEST(Sampler, TemperatureGivesTheSoftmax) {
  auto counts = draw({1.0, 0, 1.0, 9});
  double total = 0;
  for (float logit : logits)
    total += std::exp(logit);
  for (int32_t i = 0; i < 5; ++i) {
    double p = std::exp(logits[static_cast<size_t>(i)]) / total;
    // Five standard deviations.
    EXPECT_NEAR(counts[i] / 20000.0, p, 5 * std::sqrt(p * (1 - p) / 20000));
  }
}

TEST(Sampler, TopKAndTopPCut) {
  auto two = draw({1.0, 2, 1.0, 9});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_TRUE(two.count(1) && two.count(3));
  auto three = draw({1.0, 3, 1.0, 9});
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(three.count(2));
  // The best two have 0.78 of the probability.
  EXPECT_EQ(draw({1.0, 0, 0.3, 9}).size(), 1u);
  EXPECT_EQ(draw({1.0, 0, 0.7, 9}).size(), 2u);
  EXPECT_EQ(draw({1.0, 0, 0.8, 9}).size(), 3u);
}

TEST(Sampler, ASeedIsASequence) {
  auto sequence = [](uint64_t seed) {
    Sampler sampler({1.0, 0, 1.0, seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i)
      tokens.push_back(sampler.pick(logits.data(), 5));
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, BadOptionsAreRefused) {
  EXPECT_EQ(checkSampler({-1}).message(),
            "temperature -1.000000 should be from 0 to 100");
  EXPECT_EQ(checkSampler({NAN}).message(),
            "temperature nan should be from 0 to 100");
  EXPECT_EQ(checkSampler({1, -2}).message(), "top-k -2 should not be negative");
  EXPECT_EQ(checkSampler({1, 0, 0}).message(),
            "top-p 0.000000 should be above 0 and at most 1");
  EXPECT_TRUE(checkSampler({}).ok());
}
