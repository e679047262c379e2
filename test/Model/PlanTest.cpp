// The published cache numbers. hybrid-model.md 3.2.
#include "kdac/Model/Plan.h"

#include "gtest/gtest.h"

using namespace kdac;
using namespace kdac::model;

namespace {

CachePlan planOf(const char *preset, int64_t context, int64_t batch = 1,
                 CacheTypes types = {}) {
  StatusOr<ModelConfig> config = presetConfig(preset);
  EXPECT_TRUE(config.ok());
  StatusOr<CachePlan> plan = planCaches(*config, context, batch, types);
  EXPECT_TRUE(plan.ok());
  return *plan;
}

} // namespace

TEST(Plan, KimiK3AtAMillionTokens) {
  CachePlan plan = planOf("kimi-k3", 1048576);
  EXPECT_EQ(plan.statePerLayer, 6291456);
  EXPECT_EQ(plan.convPerLayer, 294912);
  EXPECT_EQ(plan.fixedPerRequest(), 454459392);
  EXPECT_EQ(plan.growthPerToken(), 27648);
  EXPECT_EQ(plan.hybridBytes(), 29445488640);
  EXPECT_EQ(plan.allMlaBytes(), 112340238336);
  EXPECT_NEAR(plan.crossover(), 5717.3, 0.05);
}

TEST(Plan, KimiLinear48b) {
  CachePlan plan = planOf("kimi-linear-48b", 1048576);
  EXPECT_EQ(plan.statePerLayer, 2097152);
  EXPECT_EQ(plan.convPerLayer, 98304);
  EXPECT_EQ(plan.fixedPerRequest(), 43909120);
  EXPECT_EQ(plan.growthPerToken(), 8064);
  EXPECT_NEAR(plan.crossover(), 1905.8, 0.05);
}

TEST(Plan, ABatchMultipliesAndTypesCount) {
  CachePlan one = planOf("kimi-k3", 4096), many = planOf("kimi-k3", 4096, 64);
  EXPECT_EQ(many.hybridBytes(), 64 * one.hybridBytes());
  CachePlan wide = planOf("kimi-k3", 4096, 1, {4, 4});
  EXPECT_EQ(wide.convPerLayer, 2 * one.convPerLayer);
  EXPECT_EQ(wide.growthPerToken(), 2 * one.growthPerToken());
  EXPECT_EQ(wide.statePerLayer, one.statePerLayer);
}

TEST(Plan, TooManyBytesAreRefused) {
  StatusOr<ModelConfig> config = presetConfig("kimi-k3");
  EXPECT_FALSE(planCaches(*config, int64_t(1) << 40, int64_t(1) << 40).ok());
  EXPECT_FALSE(planCaches(*config, -1, 1).ok());
}
