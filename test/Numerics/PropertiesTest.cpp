// What holds whatever the numbers are: cutting, permuting, padding and
// splitting the work must not matter, mostly not even to the last bit.
#include "CaseSurgery.h"
#include "HostKernel.h"

#include "gtest/gtest.h"

#include <cstring>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// The kernels whose properties are checked: both forms, each kind of decay and
/// erase, each dtype, both layouts.
std::vector<Variant> kernels() {
  auto make = [](const char *recurrence, Form form, DType dtype,
                 StateLayout layout) {
    Variant v;
    v.recurrence = recurrence;
    v.form = form;
    v.dtype = dtype;
    v.stateLayout = layout;
    v.keyDim = 64;
    v.valueDim = 48;
    return resolved(v);
  };
  constexpr Form chunk = Form::Chunk, step = Form::Step;
  constexpr StateLayout vk = StateLayout::VK, kv = StateLayout::KV;
  return {make("kda", chunk, DType::BF16, vk),
          make("kda", step, DType::BF16, vk),
          make("gated_delta", chunk, DType::F32, kv),
          make("delta", step, DType::F16, kv),
          make("gla", chunk, DType::F16, vk),
          make("linear", chunk, DType::F32, vk),
          make("retention", step, DType::F32, kv),
          make("dplr", step, DType::BF16, kv)};
}

CaseSpec specOf(const Variant &variant) {
  CaseSpec spec;
  spec.variant = variant;
  spec.heads = 2;
  spec.valueHeads = 4;
  return spec;
}

void runOrFail(Case &c) {
  c.poisonOutputs();
  std::optional<std::string> error = hostVariant(c.spec().variant).run(c);
  EXPECT_FALSE(error) << describe(c.spec()) << ": " << *error;
}

/// Runs tokens [first, first + count) of the one sequence of `whole` with
/// `variant`, starting from `state` if it is not null, and writes the outputs
/// into `whole`.
void runPiece(Case &whole, const Variant &variant, int64_t first, int64_t count,
              bool fromFinal) {
  CaseSpec spec = whole.spec();
  spec.variant = variant;
  spec.tokens = count;
  Case piece = makeCase(spec);
  copyTokens(whole, first, piece, 0, count);
  copyRows(*whole.find(fromFinal ? "ht" : "h0"), 0, *piece.find("h0"), 0, 1);
  runOrFail(piece);
  copyRows(*piece.find("out"), 0, *whole.find("out"), first, count);
  copyRows(*piece.find("ht"), 0, *whole.find("ht"), 0, 1);
}

/// Runs the sequence cut at `cuts`, with the state handed on.
void runCut(Case &whole, const Variant &variant,
            const std::vector<int64_t> &cuts) {
  int64_t first = 0;
  std::vector<int64_t> ends = cuts;
  ends.push_back(whole.tokens());
  for (int64_t end : ends) {
    runPiece(whole, variant, first, end - first, first > 0);
    first = end;
  }
}

class PropertiesTest : public testing::TestWithParam<Variant> {
protected:
  const Variant &variant = GetParam();
  std::string name = variantName(variant);
};

} // namespace

// A cut at a multiple of every chunk length changes nothing at all, any other
// cut no more than rounding.
TEST_P(PropertiesTest, SplitPrefillIsOneShot) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 200;
  Case whole = makeCase(spec), cut = makeCase(spec);
  runOrFail(whole);
  runCut(cut, variant, {64, 128});
  expectSameOutputs(whole, cut, name);
  for (std::vector<int64_t> cuts :
       {std::vector<int64_t>{1}, {50, 99}, {17, 18, 199}}) {
    CheckResult result = check(cut, [&](Case &c) -> std::optional<std::string> {
      runCut(c, variant, cuts);
      return std::nullopt;
    });
    EXPECT_TRUE(result.passed()) << name << ": " << toString(result);
  }
}

// A chunk kernel hands its state to the step kernel of the same variant.
TEST_P(PropertiesTest, PrefillThenStepsIsOneShot) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 45;
  Variant step = variant;
  step.form = Form::Step;
  Case c = makeCase(spec);
  CheckResult result = check(c, [&](Case &whole) -> std::optional<std::string> {
    runPiece(whole, variant, 0, 33, false);
    for (int64_t t = 33; t < 45; ++t)
      runPiece(whole, step, t, 1, true);
    return std::nullopt;
  });
  EXPECT_TRUE(result.passed()) << name << ": " << toString(result);
}

TEST_P(PropertiesTest, PermutedSequencesGivePermutedResults) {
  std::vector<int64_t> lengths = {5, 0, 33, 64, 1, 70, 0, 16};
  std::vector<size_t> order = {3, 6, 0, 7, 5, 1, 4, 2};
  CaseSpec spec = specOf(variant);
  spec.lengths = lengths;
  Case straight = makeCase(spec);
  for (size_t i = 0; i < order.size(); ++i)
    spec.lengths[i] = lengths[order[i]];
  Case permuted = makeCase(spec);
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t n = static_cast<int64_t>(i), from = static_cast<int64_t>(order[i]);
    copyTokens(straight, straight.offsets()[from], permuted,
               permuted.offsets()[n], spec.lengths[i]);
    copyRows(*straight.find("h0"), from, *permuted.find("h0"), n, 1);
  }
  runOrFail(straight);
  runOrFail(permuted);
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t n = static_cast<int64_t>(i), from = static_cast<int64_t>(order[i]);
    expectSameRows(*permuted.find("out"), permuted.offsets()[n],
                   *straight.find("out"), straight.offsets()[from],
                   spec.lengths[i], name);
    expectSameRows(*permuted.find("ht"), n, *straight.find("ht"), from, 1,
                   name);
  }
}

TEST_P(PropertiesTest, DenseEqualsPacked) {
  CaseSpec spec = specOf(variant);
  spec.sequences = 3;
  spec.tokens = 37;
  Case dense = makeCase(spec);
  spec.lengths.assign(3, 37);
  Case packed = makeCase(spec);
  runOrFail(dense);
  runOrFail(packed);
  expectSameOutputs(dense, packed, name);
}

TEST_P(PropertiesTest, OffsetsOfBothTypesAgree) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {3, 0, 40, 33};
  Case narrow = makeCase(spec);
  spec.variant.offsetDtype = DType::I64;
  Case wide = makeCase(spec);
  runOrFail(narrow);
  runOrFail(wide);
  expectSameOutputs(narrow, wide, name);
}

TEST_P(PropertiesTest, StridedTokensEqualContiguousOnes) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 70;
  Case contiguous = makeCase(spec);
  spec.tokenGap = 16;
  Case strided = makeCase(spec);
  runOrFail(contiguous);
  runOrFail(strided);
  expectSameOutputs(contiguous, strided, name);
}

// pitfalls.md STA-5, to the last bit, as the next test and DenseEqualsPacked.
TEST_P(PropertiesTest, AbsentInitialStateIsZero) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {70, 0, 1};
  Case zero = makeCase(spec);
  Buffer &h0 = *zero.find("h0");
  std::memset(h0.data(), 0, static_cast<size_t>(h0.bytes()));
  spec.hasInitial = false;
  Case absent = makeCase(spec);
  runOrFail(zero);
  runOrFail(absent);
  expectSameOutputs(zero, absent, name);
}

TEST_P(PropertiesTest, AbsentFinalStateChangesNoOutput) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 40;
  Case with = makeCase(spec);
  spec.hasFinal = false;
  Case without = makeCase(spec);
  runOrFail(with);
  runOrFail(without);
  expectSameRows(*with.find("out"), 0, *without.find("out"), 0, 40, name);
}

// STA-7: no call keeps anything where another one writes.
TEST_P(PropertiesTest, CallsKeepToTheirOwnBuffers) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 40;
  Case first = makeCase(spec);
  runOrFail(first);
  spec.seed += 1;
  Case second = makeCase(spec), again = makeCase(spec);
  std::vector<std::byte> kept(static_cast<size_t>(first.find("out")->bytes()));
  std::memcpy(kept.data(), first.find("out")->data(), kept.size());
  runOrFail(second);
  EXPECT_EQ(std::memcmp(kept.data(), first.find("out")->data(), kept.size()), 0)
      << name;
  runOrFail(first);
  runOrFail(again);
  EXPECT_EQ(std::memcmp(kept.data(), first.find("out")->data(), kept.size()), 0)
      << name;
  expectSameOutputs(second, again, name);
}

// Causality to the last bit: whatever comes later, even where it is enormous.
TEST_P(PropertiesTest, LaterTokensLeaveEarlierOutputsAlone) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 100;
  Case original = makeCase(spec);
  runOrFail(original);
  for (int64_t from : {1, 15, 16, 17, 32, 50, 64, 65, 99}) {
    Case changed = makeCase(spec);
    for (Buffer &buffer : changed.buffers())
      if (buffer.kind() == ArgKind::Input && isPerToken(buffer, changed))
        for (int64_t t = from; t < 100; ++t)
          for (int64_t h = 0; h < buffer.layout().heads; ++h)
            for (int64_t j = 0; j < buffer.layout().width; ++j)
              buffer.set(t, h, j,
                         (buffer.name() == "g" ? 1.0 : -30.0) *
                             (buffer.get(t, h, j) - 1e-3));
    runOrFail(changed);
    expectSameRows(*original.find("out"), 0, *changed.find("out"), 0, from,
                   name + " changed from token " + std::to_string(from));
  }
}

// Program instances are independent: their order does not matter, nor do the
// scratch memory they find, nor the threads that run them.
TEST_P(PropertiesTest, InstancesRunInAnyOrder) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {33, 0, 64, 2};
  Case forwards = makeCase(spec), backwards = makeCase(spec);
  runOrFail(forwards);
  std::optional<std::string> error =
      hostVariant(variant).runBackwards(backwards);
  EXPECT_FALSE(error) << *error;
  expectSameOutputs(forwards, backwards, name);
}

TEST_P(PropertiesTest, RunsAreReproducible) {
  CaseSpec spec = specOf(variant);
  spec.tokens = 77;
  Case first = makeCase(spec), second = makeCase(spec);
  runOrFail(first);
  runOrFail(second);
  expectSameOutputs(first, second, name);
}

// Every chunk length and slice of V a schedule may name gives right results.
TEST_P(PropertiesTest, SchedulesAgreeWithTheOracle) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {0, 15, 64, 65, 130};
  Case c = makeCase(spec);
  Results expected = run(operandsOf(c));
  std::vector<int64_t> chunks = {16, 64};
  if (variant.form == Form::Step)
    chunks = {0};
  for (int64_t chunk : chunks)
    for (int64_t vTile : {16, 32, 48}) { // 32 leaves a narrow last slice
      ScheduleOptions options;
      options.chunk = chunk;
      options.vTile = vTile;
      const HostVariant &kernel = hostVariant(variant, options);
      EXPECT_EQ(kernel.vTile, vTile) << kernel.error;
      CheckResult result = check(c, kernel.runner(), &expected);
      EXPECT_TRUE(result.passed()) << name << " chunk " << chunk << " v_tile "
                                   << vTile << ": " << toString(result);
    }
}

TEST_P(PropertiesTest, EmptyCallsDoNothingButPassStatesThrough) {
  CaseSpec spec = specOf(variant);
  spec.sequences = 2;
  spec.tokens = 0;
  expectCorrect(spec);
  spec.lengths = {0, 0, 0};
  expectCorrect(spec);
  spec.hasInitial = false;
  expectCorrect(spec);
}

INSTANTIATE_TEST_SUITE_P(Kernels, PropertiesTest, testing::ValuesIn(kernels()),
                         [](const auto &info) {
                           return entryName(info.param);
                         });
