// The whole family: every pair of options of a variant occurs in some compiled
// kernel, and every kernel runs packed and dense, on lengths around every tail.
#include "HostKernel.h"
#include "PairCover.h"

#include "gtest/gtest.h"

#include <algorithm>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t dims[] = {32, 60, 64, 96, 100, 128, 192, 256};
constexpr int64_t tails[] = {0, 1, 15, 16, 17, 31, 33, 63, 64, 65, 100};

/// One configuration of the cover.
struct Configuration {
  Variant variant;
  int64_t group;       ///< HV / H
  bool h0, aLog, bias; ///< which optional arguments exist
};

template <typename T> T pick(std::vector<T> list, int level) {
  return list[static_cast<size_t>(level) % list.size()];
}

std::vector<Gate> gatesOf(const Recurrence &row) {
  if (row.decay == Decay::None)
    return {Gate::None};
  if (row.decay == Decay::HeadConstant)
    return {Gate::Identity};
  if (row.decay == Decay::Head)
    return {Gate::Softplus, Gate::Identity};
  return {Gate::Bounded, Gate::Softplus, Gate::Identity};
}

std::vector<Beta> betasOf(const Recurrence &row) {
  if (row.beta == Beta::None)
    return {Beta::None};
  return {Beta::Identity, Beta::Sigmoid, Beta::TwoSigmoid};
}

// clang-format off
enum Factor { Rec, Frm, Key, Val, Gat, Bet, Typ, STy, Lay, Off, Nrm, GTy, Grp, H0, ALog, Bias };
const std::vector<int> levelCounts =
            { 8,   2,   8,   8,   3,   3,   3,   2,   2,   2,   2,   3,   3,   2,  2,    2 };
// clang-format on

/// Levels that do not exist for a recurrence fall back on ones that do.
void normalise(Levels &levels) {
  const Recurrence &row = recurrences()[static_cast<size_t>(levels[Rec])];
  if (row.erase == Erase::Pair)
    levels[Frm] = 1;
  levels[Gat] %= static_cast<int>(gatesOf(row).size());
  levels[Bet] %= static_cast<int>(betasOf(row).size());
}

Configuration configurationOf(const Levels &l) {
  const Recurrence &row = recurrences()[static_cast<size_t>(l[Rec])];
  std::vector<DType> floats = {DType::BF16, DType::F16, DType::F32};
  Configuration c;
  Variant &v = c.variant;
  v.recurrence = row.name;
  v.form = pick<Form>({Form::Chunk, Form::Step}, l[Frm]);
  v.keyDim = dims[l[Key]];
  v.valueDim = dims[l[Val]];
  v.gate = pick(gatesOf(row), l[Gat]);
  v.beta = pick(betasOf(row), l[Bet]);
  v.dtype = pick(floats, l[Typ]);
  v.stateDtype = pick<DType>({DType::F32, DType::BF16}, l[STy]);
  v.stateLayout = pick<StateLayout>({StateLayout::VK, StateLayout::KV}, l[Lay]);
  v.offsetDtype = pick<DType>({DType::I32, DType::I64}, l[Off]);
  v.l2norm = l[Nrm] != 0;
  v.gateDtype = pick(floats, l[GTy]);
  v.lowerBound = l[H0] ? -5.0 : -2.5;
  v = resolved(v);
  c.group = pick<int64_t>({1, 2, 4}, l[Grp]);
  c.h0 = l[H0] != 0;
  c.aLog = l[ALog] != 0;
  c.bias = l[Bias] != 0;
  return c;
}

const std::vector<Configuration> &cover() {
  static const std::vector<Configuration> configurations = [] {
    std::vector<Configuration> list;
    for (uint64_t seed : {1, 2}) // two covers: most triples, too
      for (const Levels &levels : coverPairs(levelCounts, normalise, seed))
        list.push_back(configurationOf(levels));
    return list;
  }();
  return configurations;
}

CaseSpec specOf(const Configuration &c) {
  CaseSpec spec;
  spec.variant = c.variant;
  spec.heads = c.group == 4 ? 1 : 2;
  spec.valueHeads = spec.heads * c.group;
  spec.hasInitial = c.h0;
  spec.hasALog = c.aLog;
  spec.hasDtBias = c.bias;
  return spec;
}

class FamilyTest : public testing::TestWithParam<size_t> {
protected:
  const Configuration &configuration = cover()[GetParam()];
};

} // namespace

// All tails at once, starting with another one for every kernel, empty
// sequences at both ends and in between, tokens of no sequence behind them.
TEST_P(FamilyTest, Packed) {
  CaseSpec spec = specOf(configuration);
  spec.lengths.assign(std::begin(tails), std::end(tails));
  std::rotate(spec.lengths.begin(),
              spec.lengths.begin() + GetParam() % spec.lengths.size(),
              spec.lengths.end());
  spec.lengths.insert(spec.lengths.begin(), 0);
  spec.lengths.push_back(0);
  spec.trailing = 3;
  expectCorrect(spec);
}

// One tail for every kernel, all of them over the cover; strided tokens.
TEST_P(FamilyTest, Dense) {
  CaseSpec spec = specOf(configuration);
  spec.sequences = 3;
  spec.tokens = tails[GetParam() % std::size(tails)];
  spec.tokenGap = 8;
  spec.hasInitial = !spec.hasInitial;
  spec.hasFinal = GetParam() % 3 != 0;
  expectCorrect(spec);
}

INSTANTIATE_TEST_SUITE_P(Cover, FamilyTest,
                         testing::Range(size_t(0), cover().size()),
                         [](const auto &info) {
                           std::string name =
                               entryName(cover()[info.param].variant);
                           return std::to_string(info.param) + "_" + name;
                         });

// The cover is what it claims to be, for the pairs a reader cares for most.
TEST(Family, CoversEveryRecurrenceFormAndShape) {
  auto covered = [](auto predicate) {
    return std::any_of(cover().begin(), cover().end(), predicate);
  };
  for (const Recurrence &row : recurrences())
    for (Form form : {Form::Chunk, Form::Step}) {
      bool exists = form == Form::Step || row.erase != Erase::Pair;
      EXPECT_EQ(exists, covered([&](const Configuration &c) {
                  return c.variant.recurrence == row.name &&
                         c.variant.form == form;
                }))
          << row.name;
    }
  for (int64_t key : dims)
    for (int64_t value : dims)
      EXPECT_TRUE(covered([&](const Configuration &c) {
        return c.variant.keyDim == key && c.variant.valueDim == value;
      })) << key
          << " x " << value;
  for (Form form : {Form::Chunk, Form::Step})
    for (DType dtype : {DType::BF16, DType::F16, DType::F32})
      EXPECT_TRUE(covered([&](const Configuration &c) {
        return c.variant.form == form && c.variant.dtype == dtype;
      }));
}
