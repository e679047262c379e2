#include "kdac/Pack/SizeExpr.h"

#include <gtest/gtest.h>

using namespace kdac;

namespace {

const SizeBindings sizes = {
    {"N", 3},   {"HV", 8}, {"V", 128}, {"T", 0}, {"big", int64_t(1) << 62},
    {"bad", -1}};

int64_t value(std::string_view text) {
  StatusOr<int64_t> result = evaluateSize(text, sizes);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : -1;
}

std::string error(std::string_view text) {
  StatusOr<int64_t> result = evaluateSize(text, sizes);
  EXPECT_FALSE(result.ok()) << text << " = " << *result;
  return result.status().message();
}

TEST(SizeExpr, Grid) {
  EXPECT_EQ(value("N * HV * ceildiv(V, 64)"), 48);
  EXPECT_EQ(value("N * HV * ceildiv(V, 100)"), 48);
  EXPECT_EQ(value("T*HV"), 0);
}

TEST(SizeExpr, SumsBindLooserThanProducts) {
  EXPECT_EQ(value("1 + 2 * 3 + max(N, 4) * min(2, HV)"), 15);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
}

TEST(SizeExpr, LessPicks) {
  EXPECT_EQ(value("less(2, 3)"), 1);
  EXPECT_EQ(value("less(3, 3)"), 0);
  EXPECT_EQ(value("minus(7, 3)"), 4);
  EXPECT_EQ(value("minus(3, 7)"), 0);
  EXPECT_EQ(value("7 * less(4, 2 + 3) + less(5, 4)"), 7);
}

TEST(SizeExpr, OverflowIsAnError) {
  EXPECT_NE(error("big * 2").find("exceeds 64 bits"), std::string::npos);
  EXPECT_NE(error("big + big").find("exceeds 64 bits"), std::string::npos);
  EXPECT_NE(error("9223372036854775808").find("exceeds 64 bits"),
            std::string::npos);
  EXPECT_EQ(value("9223372036854775807"), INT64_MAX);
}

TEST(SizeExpr, BadInputIsAnError) {
  EXPECT_NE(error("N * W").find("unknown name 'W'"), std::string::npos);
  EXPECT_NE(error("bad").find("negative"), std::string::npos);
  EXPECT_NE(error("ceildiv(N, T)").find("divides by zero"), std::string::npos);
  EXPECT_NE(error("floor(N, 2)").find("unknown function"), std::string::npos);
  for (const char *text : {"", "N *", "(N", "N N", "ceildiv(N)", "1 - 2", ")"})
    EXPECT_FALSE(error(text).empty());
  EXPECT_NE(error(std::string(100000, '(')).find("nests deeper"),
            std::string::npos);
}

TEST(SizeExpr, CheckKnowsItsNames) {
  EXPECT_TRUE(checkSizeExpr("N * HV", {"N", "HV"}).ok());
  EXPECT_FALSE(checkSizeExpr("N * HV", {"N"}).ok());
}

} // namespace
