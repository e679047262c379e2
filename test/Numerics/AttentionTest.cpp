// Kernels of form attention on this CPU against the oracle.
#include "HostKernel.h"

#include "kdac/Reference/Attention.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace kdac;
using namespace kdac::reference;

namespace {

Variant variantOf(DType dtype, int64_t keyDim = 576, int64_t valueDim = 512) {
  Variant v;
  v.form = Form::Attention;
  v.keyDim = keyDim;
  v.valueDim = valueDim;
  v.dtype = dtype;
  return resolved(v);
}

CaseSpec specOf(const Variant &variant, std::vector<int64_t> lengths,
                int64_t heads, const char *recipe = "random") {
  CaseSpec spec;
  spec.variant = variant;
  spec.lengths = std::move(lengths);
  spec.heads = heads;
  spec.recipe = recipe;
  return spec;
}

class AttentionTest : public testing::TestWithParam<DType> {
protected:
  Variant wide = variantOf(GetParam());
  Variant narrow = variantOf(GetParam(), 128, 64);
};

} // namespace

TEST_P(AttentionTest, LengthsAroundPages) {
  expectCorrect(specOf(narrow, {0, 1, 63, 64, 65, 128, 200, 0}, 3));
  expectCorrect(specOf(wide, {0, 1, 65}, 2));
}

TEST_P(AttentionTest, WiderRows) {
  expectCorrect(specOf(variantOf(GetParam(), 1280, 1024), {65, 3}, 5));
}

TEST_P(AttentionTest, HeadsOfOneProgramAndMore) {
  for (int64_t heads : {1, 7, 8, 9, 16, 33, 64})
    expectCorrect(specOf(narrow, {70, 3}, heads));
}

/// As many splits as turns, fewer and more: 8 programs are wanted.
TEST_P(AttentionTest, Splits) {
  for (int64_t turns : {1, 7, 8, 9, 17, 40})
    expectCorrect(specOf(narrow, {turns * 64 - 5}, 2));
  expectCorrect(specOf(narrow, std::vector<int64_t>(9, 150), 1));
}

TEST_P(AttentionTest, RowsNarrowerThanTheKernels) {
  for (int64_t columns : {16, 64, 120}) {
    CaseSpec spec = specOf(narrow, {90, 64}, 4);
    spec.columns = columns;
    expectCorrect(spec);
  }
}

TEST_P(AttentionTest, WithoutSlots) {
  CaseSpec order = specOf(narrow, {70, 10}, 4);
  order.hasSlots = false;
  expectCorrect(order);
}

/// Guards around the pages are NaN: what is read of them shows.
TEST_P(AttentionTest, IndicesOutOfRangeAreNotFollowed) {
  CaseSpec spec = specOf(narrow, {130, 70, 64, 192, 10}, 4);
  spec.hasBadIndices = true;
  expectCorrect(spec);
}

TEST_P(AttentionTest, HardValues) {
  for (const char *recipe : {"correlated", "tiny_qk", "large_v", "faint_v"})
    expectCorrect(specOf(narrow, {100, 64}, 4, recipe));
}

/// By hand: two keys, of which the second weighs three times as much.
TEST(AttentionOracleTest, TwoKeys) {
  AttentionOperands o;
  o.sequences = o.heads = 1;
  o.width = 2;
  o.values = 1;
  o.pageCount = o.slotCount = o.tablePitch = 1;
  o.pageRows = 64;
  o.table = {0};
  o.lengths = {2};
  o.scale = std::log(3.0);
  o.q = [](int64_t, int64_t, double *row) { row[0] = 0.0, row[1] = 1.0; };
  o.pages = [](int64_t key, int64_t, double *row) {
    row[0] = key == 0 ? 1.0 : 5.0, row[1] = double(key);
  };
  EXPECT_NEAR(runAttention(o).out[0], (1.0 + 3.0 * 5.0) / 4.0, 1e-12);
  o.lengths = {0};
  EXPECT_EQ(runAttention(o).out[0], 0.0);
  o.lengths = {2};
  o.table = {1};
  EXPECT_EQ(runAttention(o).out[0], 0.0);
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionTest,
                         testing::Values(DType::BF16, DType::F16, DType::F32),
                         [](const auto &info) {
                           return std::string(spell(info.param));
                         });
