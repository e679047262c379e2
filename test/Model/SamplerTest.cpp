// Choosing tokens.
#include "kdac/Model/Sampler.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
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

/// A vocabulary's tail is sorted no further than a draw asks; the definition,
/// on all of it sorted, gives the same tokens.
TEST(Sampler, LazySortingIsSorting) {
  constexpr int64_t count = 5000, draws = 500;
  std::vector<float> many(count);
  std::mt19937 random(3);
  for (float &x : many)
    x = static_cast<float>(random() % 64) / 8; // ties
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return many[a] != many[b] ? many[a] > many[b] : a < b;
  });
  for (SamplerOptions options : {SamplerOptions{1.0, 0, 1.0, 5},
                                 {3.0, 0, 0.9, 6},
                                 {2.0, 700, 0.99, 7},
                                 {1.0, count + 1, 0.5, 8},
                                 {1.0, 1, 1.0, 9}}) {
    Sampler sampler(options);
    std::map<int32_t, int> counts;
    for (int i = 0; i < draws; ++i)
      ++counts[sampler.pick(many.data(), count)];
    int64_t limit = options.topK > 0 ? std::min(options.topK, count) : count;
    double total = 0, kept = 0;
    std::vector<double> weights;
    for (int64_t i = 0; i < limit; ++i) {
      weights.push_back(
          std::exp((many[order[i]] - many[order[0]]) / options.temperature));
      total += weights.back();
    }
    size_t size = 0;
    while (size < weights.size() && kept < options.topP * total)
      kept += weights[size++];
    // Halves of the kept tokens get what they weigh.
    double half = 0, expected = 0;
    for (size_t i = 0; i < size; ++i) {
      if (i < size / 2)
        expected += weights[i] / kept;
      half += i < size / 2 ? counts[order[i]] : 0;
      counts.erase(order[i]);
    }
    EXPECT_TRUE(counts.empty()) << "a token beyond the limits";
    EXPECT_NEAR(half / draws, expected,
                5 * std::sqrt(expected * (1 - expected) / draws) + 1e-12);
  }
}

TEST(Sampler, LimitsAtTheirEnds) {
  EXPECT_EQ(draw({1.0, 99, 1.0, 9}), draw({1.0, 0, 1.0, 9}));
  EXPECT_EQ(draw({1.0, 0, 1e-300, 9}), (std::map<int32_t, int>{{1, 20000}}));
  EXPECT_EQ(draw({1.0, 1, 1.0, 9}), (std::map<int32_t, int>{{1, 20000}}));
  // So cold that the best, the first of two, take everything.
  EXPECT_EQ(draw({1e-300, 0, 1.0, 9}).size(), 2u);
}

TEST(Sampler, WhatIsNoNumberIsNotDrawn) {
  auto drawn = [](std::vector<float> odd) {
    Sampler sampler({1.0, 0, 1.0, 9});
    std::map<int32_t, int> counts;
    for (int i = 0; i < 2000; ++i)
      ++counts[sampler.pick(odd.data(), static_cast<int64_t>(odd.size()))];
    return counts;
  };
  EXPECT_EQ(drawn({NAN, 1, -INFINITY, 1}).size(), 2u);
  EXPECT_EQ(drawn({NAN, 1, INFINITY, 1}), (std::map<int32_t, int>{{2, 2000}}));
  EXPECT_EQ(drawn({-INFINITY, -INFINITY, 0}),
            (std::map<int32_t, int>{{2, 2000}}));
  EXPECT_EQ(drawn({NAN, NAN, NAN}).size(), 3u);
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
