#include "kdac/SelfTest/Cost.h"

#include <gtest/gtest.h>

using namespace kdac;
using namespace kdac::selftest;

namespace {

PackVariant variantOf(void (*change)(Variant &) = nullptr) {
  PackVariant packed;
  packed.variant.target = "sm_90a";
  if (change)
    change(packed.variant);
  EXPECT_EQ(resolve(packed.variant), std::nullopt);
  Launch launch;
  launch.grid = gridExpr(128);
  packed.launches = {launch};
  return packed;
}

Estimate estimated(const PackVariant &v, const char *shape) {
  auto shapes = parseShapes(shape);
  EXPECT_TRUE(shapes.ok());
  auto e = estimate(v, shapes->front(), gpus().front());
  EXPECT_TRUE(e.ok()) << e.status().message();
  return e.ok() ? *e : Estimate();
}

/// The numbers of shared/reference/peers.md: 163,840 FLOPs a token and head, a
/// floor of 239 us at H = 96 and 10 us at H = 4.
TEST(Cost, KdaChunk) {
  PackVariant v = variantOf();
  Estimate e = estimated(v, "chunk:1:8192:96");
  EXPECT_EQ(e.flops, int64_t(8192) * 96 * 163840);
  EXPECT_NEAR(e.floorMicroseconds(), 239, 1);
  EXPECT_EQ(e.instances, 96);
  EXPECT_EQ(e.limiter, "parallelism: 96 instances for 132 multiprocessors");
  EXPECT_NEAR(estimated(v, "chunk:1:8192:4").floorMicroseconds(), 10, 0.1);
  EXPECT_EQ(estimated(v, "chunk:8:1024:96").limiter.substr(0, 6), "memory");
}

/// Pool variants have a launch that only checked calls make, layers some that
/// stand beside the recurrence's.
TEST(Cost, LaunchesOfLayersAndPools) {
  PackVariant v = variantOf([](Variant &x) { x.slots = DType::I32; });
  Launch check, rows;
  check.grid = "checked";
  rows.grid = "N * HV * 40";
  v.launches.insert(v.launches.begin(), {check, rows});
  EXPECT_EQ(estimated(v, "chunk:1:8192:96").instances, 96);
}

TEST(Cost, BytesAreEveryTensorOnce) {
  PackVariant v = variantOf([](Variant &x) {
    x.recurrence = "delta";
    x.keyDim = 32;
    x.valueDim = 64;
    x.form = Form::Step;
  });
  EXPECT_EQ(costOf(v.variant, false).bytes,
            "4 * tokens * H * K + 4 * tokens * HV * V + 2 * tokens * HV + "
            "8 * N * HV * V * K");
  // 3 tokens of 2 key and 4 value heads in 3 sequences.
  Estimate e = estimated(v, "step:3:1:2:4");
  EXPECT_EQ(e.bytes,
            4 * 3 * 2 * 32 + 4 * 3 * 4 * 64 + 2 * 3 * 4 + 8 * 3 * 4 * 64 * 32);
  EXPECT_EQ(e.flops, 3 * 4 * 6 * 32 * 64);
  // Packed calls read offsets as well.
  EXPECT_EQ(estimated(v, "step:1:2+0+1:2:4").bytes, e.bytes + 4 * 4);
}

/// A pool's slots that no sequence uses cost nothing; caches are read and
/// written.
TEST(Cost, PoolsAndConvolutions) {
  PackVariant v = variantOf([](Variant &x) {
    x.form = Form::Step;
    x.slots = DType::I32;
    x.conv = 4;
    x.norm = OutputNorm::Silu;
  });
  std::string formula = costOf(v.variant, false).bytes;
  EXPECT_NE(formula.find("8 * N * HV * V * K"), std::string::npos) << formula;
  EXPECT_NE(formula.find("4 * N * H * K * 4"), std::string::npos) << formula;
  EXPECT_GT(estimated(v, "step:64:1:96").bytes, 8 * 64 * 96 * 128 * 128);
}

TEST(Cost, FormsAndParts) {
  auto flops = [](void (*change)(Variant &)) {
    return costOf(variantOf(change).variant, false).flops;
  };
  EXPECT_EQ(flops([](Variant &v) { v.recurrence = "linear"; }),
            "tokens * HV * (4 * K * V + 128 * (K + V))");
  EXPECT_EQ(flops([](Variant &v) { v.form = Form::Step; }),
            "tokens * HV * 7 * K * V");
  EXPECT_EQ(flops([](Variant &v) {
              v.form = Form::Step;
              v.recurrence = "dplr";
            }),
            "tokens * HV * 9 * K * V");
}

TEST(Cost, ComputeBound) {
  // f32 products of high precision run at half the rate: 64 heads of 8192.
  PackVariant v = variantOf([](Variant &x) {
    x.keyDim = x.valueDim = 256;
    x.precision = Precision::High;
  });
  Estimate e = estimated(v, "chunk:16:8192:96");
  EXPECT_GT(e.computeMicroseconds, e.memoryMicroseconds);
  EXPECT_EQ(e.limiter.substr(0, 7), "compute");
}

TEST(Cost, TooLarge) {
  PackVariant v = variantOf();
  auto shapes = parseShapes("chunk:1000000000000:1000000000000:1");
  ASSERT_TRUE(shapes.ok());
  EXPECT_FALSE(estimate(v, shapes->front(), gpus().front()).ok());
}

TEST(Gpus, ByPartOfTheName) {
  ASSERT_NE(findGpu("h200"), nullptr);
  EXPECT_EQ(findGpu("h200")->name, "NVIDIA H200");
  EXPECT_EQ(findGpu("Voodoo"), nullptr);
}

} // namespace
