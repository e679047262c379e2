// Kernels of form prompt on this CPU against the oracle.
#include "HostKernel.h"

#include "kdac/Reference/Attention.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace kdac;
using namespace kdac::reference;

namespace {

Variant variantOf(DType dtype, int64_t keyDim = 192, int64_t valueDim = 128) {
  Variant v;
  v.form = Form::Prompt;
  v.keyDim = keyDim;
  v.valueDim = valueDim;
  v.dtype = dtype;
  return resolved(v);
}

CaseSpec specOf(const Variant &variant, std::vector<int64_t> rows,
                std::vector<int64_t> pasts, const char *recipe = "random") {
  CaseSpec spec;
  spec.variant = variant;
  spec.lengths = std::move(rows);
  spec.pasts = std::move(pasts);
  spec.heads = 2;
  spec.hasInitial = spec.hasFinal = false;
  spec.recipe = recipe;
  return spec;
}

class PromptTest : public testing::TestWithParam<DType> {
protected:
  Variant wide = variantOf(GetParam());
  Variant narrow = variantOf(GetParam(), 128, 64);
};

} // namespace

TEST_P(PromptTest, RowsAroundTiles) {
  expectCorrect(specOf(narrow, {0, 1, 63, 64, 65, 130, 0}, {}));
  expectCorrect(specOf(wide, {65, 0, 3}, {}));
}

TEST_P(PromptTest, PastsAroundTurns) {
  expectCorrect(specOf(narrow, {70, 1, 2, 64}, {1, 63, 64, 200}));
  expectCorrect(specOf(wide, {2, 70}, {127, 65}));
}

/// Keys before, between and behind the rows' own, as blocks have them.
TEST_P(PromptTest, BlocksOfKeys) {
  for (auto [past, later] :
       {std::pair<int64_t, int64_t>(-40, 110), {20, 50}, {-90, 0}, {-90, 30}})
    for (bool hasBefore : {false, true}) {
      CaseSpec spec = specOf(narrow, {100}, {past});
      spec.later = later;
      spec.hasInitial = hasBefore;
      // A logarithm of nothing would hide all others.
      spec.hasFinal = hasBefore || past + later >= 0;
      expectCorrect(spec);
    }
}

TEST_P(PromptTest, RowsNarrowerThanTheKernels) {
  for (int64_t columns : {16, 64, 120}) {
    CaseSpec spec = specOf(narrow, {90, 64}, {10, 0});
    spec.columns = columns;
    expectCorrect(spec);
  }
}

TEST_P(PromptTest, WiderHeads) {
  Variant wider = variantOf(GetParam(), 640, 512);
  expectCorrect(specOf(wider, {65, 3}, {0, 130}));
  CaseSpec spec = specOf(wider, {20}, {7});
  spec.columns = 136;
  expectCorrect(spec);
}

TEST_P(PromptTest, RowsApart) {
  CaseSpec spec = specOf(narrow, {70, 0, 9}, {5, 0, 80});
  spec.tokenGap = 16;
  spec.trailing = 2;
  expectCorrect(spec);
}

TEST_P(PromptTest, HardValues) {
  for (const char *recipe : {"correlated", "tiny_qk", "large_v", "faint_v"})
    expectCorrect(specOf(narrow, {100, 64}, {30, 0}, recipe));
  CaseSpec large = specOf(narrow, {100}, {30});
  large.scale = 12.0;
  expectCorrect(large);
}

/// By hand: of two keys the second weighs three times as much, and what other
/// calls made of theirs as much as both.
TEST(PromptOracleTest, TwoKeysAndOthers) {
  PromptOperands o;
  o.width = 2;
  o.sharedWidth = o.values = 1;
  o.offsets = {0, 2};
  o.keyOffsets = {0, 2};
  o.scale = std::log(3.0);
  o.q = [](int64_t, int64_t, double *row) { row[0] = 0.0, row[1] = 1.0; };
  o.kv = [](int64_t key, int64_t, double *row) {
    row[0] = 7.0, row[1] = key == 0 ? 1.0 : 5.0;
  };
  o.shared = [](int64_t key, int64_t, double *row) { row[0] = double(key); };
  Results results = runPrompt(o);
  EXPECT_NEAR(results.out[0], 1.0, 1e-12); // a row sees no key behind its own
  EXPECT_NEAR(results.out[1], (1.0 + 3.0 * 5.0) / 4.0, 1e-12);
  EXPECT_NEAR(results.logs[1], 2.0, 1e-12);
  o.before = [](int64_t, int64_t, double *row) { row[0] = 8.0; };
  o.beforeLogs = [](int64_t, int64_t, double *row) { row[0] = 2.0; };
  results = runPrompt(o);
  EXPECT_NEAR(results.out[1], (4.0 + 8.0) / 2.0, 1e-12);
  EXPECT_NEAR(results.logs[1], 3.0, 1e-12);
  o.before = nullptr;
  o.later = 1; // the second row's own
  EXPECT_NEAR(runPrompt(o).out[0], (1.0 + 3.0 * 5.0) / 4.0, 1e-12);
  o.keyOffsets = {0, 0};
  results = runPrompt(o);
  EXPECT_EQ(results.out[0], 0.0);
  EXPECT_EQ(results.logs[0], std::numeric_limits<float>::lowest());
}

INSTANTIATE_TEST_SUITE_P(Prompt, PromptTest,
                         testing::Values(DType::BF16, DType::F16, DType::F32),
                         [](const auto &info) {
                           return std::string(spell(info.param));
                         });
