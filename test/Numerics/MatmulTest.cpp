// Kernels of form matmul on this CPU against the oracle.
#include "HostKernel.h"

#include "kdac/Reference/Matmul.h"

#include "gtest/gtest.h"

using namespace kdac;
using namespace kdac::reference;

namespace {

class MatmulTest : public testing::TestWithParam<std::tuple<DType, RowOp>> {
protected:
  /// Entries of `lengths` groups, `each` of a row of x.
  CaseSpec specOf(std::vector<int64_t> lengths, int64_t each, int64_t columns,
                  int64_t outputs) {
    Variant v;
    v.form = Form::Matmul;
    std::tie(v.dtype, v.rows) = GetParam();
    CaseSpec spec;
    spec.variant = resolved(v);
    spec.lengths = std::move(lengths);
    spec.heads = each;
    spec.columns = columns;
    spec.outputs = outputs;
    return spec;
  }
};

} // namespace

TEST_P(MatmulTest, GroupsAroundTiles) {
  expectCorrect(specOf({0, 1, 127, 128, 0, 129}, 3, 64, 64));
  expectCorrect(specOf({0, 0}, 1, 64, 64));
}

TEST_P(MatmulTest, OneGroupWithoutAList) {
  for (int64_t entries : {1, 128, 200})
    for (bool hasOrder : {false, true}) {
      CaseSpec spec = specOf({}, hasOrder ? 4 : 1, 72, 66);
      spec.tokens = entries;
      spec.hasSlots = hasOrder;
      expectCorrect(spec);
    }
}

TEST_P(MatmulTest, PartsOfTurnsAndOfPrograms) {
  for (auto [columns, outputs] :
       {std::pair<int64_t, int64_t>(8, 2), {136, 150}, {0, 64}})
    expectCorrect(specOf({30, 7}, 2, columns, outputs));
}

/// Tiles of no group and rows that x has not: nothing wild is read or written.
TEST_P(MatmulTest, NumbersThatNameNothing) {
  CaseSpec spec = specOf({100, 0, 40}, 3, 64, 64);
  spec.hasBadIndices = true;
  expectCorrect(spec);
}

TEST_P(MatmulTest, RowsApart) {
  CaseSpec spec = specOf({70, 9}, 2, 64, 40);
  spec.tokenGap = 16;
  spec.trailing = 2;
  expectCorrect(spec);
}

TEST_P(MatmulTest, WithoutSums) {
  CaseSpec spec = specOf({70, 9}, 1, 64, 40);
  spec.hasFinal = spec.hasSlots = false;
  expectCorrect(spec);
}

/// By hand: entry 0 is row 1 of x in group 1, entry 1 has no tile.
TEST(MatmulOracleTest, TwoGroups) {
  MatmulOperands o;
  o.entries = o.rows = o.groups = 2;
  o.width = 2;
  o.columns = 1;
  o.each = 2;
  o.tiles = {1, 0, -1, 0};
  o.starts = {0, 0, 1};
  o.order = {3, 0};
  o.x = [](int64_t row, int64_t, double *x) { x[0] = double(row), x[1] = 10; };
  o.weights = [](int64_t line, int64_t, double *x) {
    x[0] = double(line), x[1] = 2;
  };
  EXPECT_EQ(runMatmul(o).out, (std::vector<double>{21, 0}));
  o.kind = RowOp::Silu;
  o.up = [](int64_t, int64_t, double *x) { x[0] = 0, x[1] = 0.5; };
  EXPECT_NEAR(runMatmul(o).out[0], 21.0 * 5.0, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Matmul, MatmulTest,
    testing::Combine(testing::Values(DType::BF16, DType::F16, DType::F32),
                     testing::Values(RowOp::None, RowOp::Silu, RowOp::Situ)),
    [](const auto &info) {
      return std::string(spell(std::get<0>(info.param))) + "_" +
             std::string(spell(std::get<1>(info.param)));
    });
