// Conversions: exhaustive where 16 bits allow it, and the ties.
#include "kdac/Reference/Float.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace kdac;
using namespace kdac::reference;

TEST(Float, Bf16RoundTripsEveryValue) {
  for (uint32_t h = 0; h < 0x10000; ++h)
    if (!std::isnan(floatOfBF16(static_cast<uint16_t>(h))))
      ASSERT_EQ(bf16Of(floatOfBF16(static_cast<uint16_t>(h))), h);
}

TEST(Float, HalfRoundTripsEveryValue) {
  for (uint32_t h = 0; h < 0x10000; ++h)
    if (!std::isnan(floatOfHalf(static_cast<uint16_t>(h))))
      ASSERT_EQ(halfOf(floatOfHalf(static_cast<uint16_t>(h))), h);
}

/// The two neighbours of every midpoint, and the midpoint itself, which goes to
/// the even significand.
TEST(Float, HalfRoundsTiesToEven) {
  for (uint16_t h = 0; h < 0x7bff; ++h) {
    float low = floatOfHalf(h);
    float high = floatOfHalf(static_cast<uint16_t>(h + 1));
    float middle = 0.5f * (low + high);
    ASSERT_EQ(halfOf(middle), h % 2 ? h + 1 : h);
    ASSERT_EQ(halfOf(std::nextafter(middle, low)), h);
    ASSERT_EQ(halfOf(std::nextafter(middle, high)), h + 1);
  }
}

TEST(Float, Bf16RoundsTiesToEven) {
  for (uint16_t h = 0; h < 0x7f7f; ++h) {
    float middle = floatOf((uint32_t(h) << 16) | 0x8000u);
    ASSERT_EQ(bf16Of(middle), h % 2 ? h + 1 : h);
    ASSERT_EQ(bf16Of(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(
        bf16Of(std::nextafter(middle, std::numeric_limits<float>::infinity())),
        h + 1);
  }
}

TEST(Float, ExtremesKeepTheirMeaning) {
  EXPECT_EQ(halfOf(65519.0f), 0x7bff);
  EXPECT_EQ(halfOf(65520.0f), 0x7c00);
  EXPECT_EQ(halfOf(-1e30f), 0xfc00);
  EXPECT_EQ(halfOf(-0.0f), 0x8000);
  EXPECT_EQ(bf16Of(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(floatOfHalf(halfOf(std::nanf("")))));
  EXPECT_TRUE(std::isnan(floatOfBF16(bf16Of(floatOf(0x7f800001u)))));
}
