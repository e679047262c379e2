// What holds whatever the numbers are: cutting, permuting, padding and
// splitting the work must not matter, mostly not even to the last bit.
#include "HostKernel.h"

#include "kdac/Reference/Float.h"

#include "gtest/gtest.h"

#include <sys/mman.h>

#include <cstring>
#include <numeric>

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

bool isPerToken(const Buffer &buffer, const Case &c) {
  return buffer.name() != "offsets" && buffer.name() != "h0" &&
         buffer.name() != "ht" && buffer.layout().tokens == c.tokens();
}

/// Copies `count` rows (tokens, or sequences of a state) bit by bit.
void copyRows(const Buffer &from, int64_t first, Buffer &to, int64_t toFirst,
              int64_t count) {
  int64_t size = dtypeSize(from.dtype());
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<std::byte *>(to.data()) +
                    to.layout().at(toFirst + i, 0, 0) * size,
                static_cast<const std::byte *>(from.data()) +
                    from.layout().at(first + i, 0, 0) * size,
                static_cast<size_t>(from.layout().rowElements() * size));
}

/// Copies tokens of every sequence input, and all per-head parameters.
void copyTokens(const Case &from, int64_t first, Case &to, int64_t toFirst,
                int64_t count) {
  for (const Buffer &source : from.buffers()) {
    if (source.kind() != ArgKind::Input || source.name() == "offsets" ||
        source.name() == "h0")
      continue;
    Buffer &target = *to.find(source.name());
    if (isPerToken(source, from))
      copyRows(source, first, target, toFirst, count);
    else
      copyRows(source, 0, target, 0, source.layout().tokens);
  }
}

/// Row `a` of `x` against row `b` of `y`, bit by bit.
bool sameRow(const Buffer &x, int64_t a, const Buffer &y, int64_t b) {
  int64_t size = dtypeSize(x.dtype());
  return std::memcmp(static_cast<const std::byte *>(x.data()) +
                         x.layout().at(a, 0, 0) * size,
                     static_cast<const std::byte *>(y.data()) +
                         y.layout().at(b, 0, 0) * size,
                     static_cast<size_t>(x.layout().rowElements() * size)) == 0;
}

void expectSameRows(const Buffer &x, int64_t firstX, const Buffer &y,
                    int64_t firstY, int64_t count, const std::string &what) {
  for (int64_t i = 0; i < count; ++i)
    ASSERT_TRUE(sameRow(x, firstX + i, y, firstY + i))
        << what << ": " << x.name() << " differs in row " << firstX + i;
}

void expectSameOutputs(const Case &x, const Case &y, const std::string &what) {
  expectSameRows(*x.find("out"), 0, *y.find("out"), 0, x.coveredTokens(), what);
  expectSameRows(*x.find("ht"), 0, *y.find("ht"), 0, x.sequences(), what);
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
  if (variant.form == Form::Step)
    GTEST_SKIP() << "the step form has one schedule on the host";
  CaseSpec spec = specOf(variant);
  spec.lengths = {0, 15, 64, 65, 130};
  Case c = makeCase(spec);
  Results expected = run(operandsOf(c));
  for (int64_t chunk : {16, 64})
    for (int64_t vTile : {16, 48}) {
      const HostVariant &kernel = hostVariant(variant, {chunk, vTile, 0});
      EXPECT_TRUE(!kernel.error.empty() || kernel.vTile == vTile);
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

//===-- Sizes beyond 16 and 32 bits
//----------------------------------------===//

// 33,000 sequences of 2 heads are more than 65,535 program instances.
TEST(Sizes, MoreThan65535SequenceHeads) {
  for (Form form : {Form::Step, Form::Chunk}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant.keyDim = spec.variant.valueDim = 16;
    spec.variant = resolved(spec.variant);
    spec.heads = 2;
    spec.lengths.assign(33000, 1);
    spec.lengths[0] = spec.lengths[32999] = 0;
    spec.lengths[17] = 3;
    expectCorrect(spec);
  }
}

namespace {

/// Address space without memory behind it until it is touched.
class SparseMemory {
public:
  explicit SparseMemory(int64_t bytes)
      : size(static_cast<size_t>(bytes)),
        base(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() { munmap(base, size); }
  SparseMemory(SparseMemory &&) = delete;

  std::byte *data() const { return static_cast<std::byte *>(base); }
  bool isMapped() const { return base != MAP_FAILED; }

private:
  size_t size;
  void *base;
};

} // namespace

// Tokens 2^31 elements apart: an offset computed in 32 bits reads the wrong
// one.
TEST(Sizes, TokenStridesBeyond32Bits) {
  constexpr int64_t stride = (int64_t(1) << 31) + 64;
  for (Form form : {Form::Chunk, Form::Step}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant = resolved(spec.variant);
    spec.tokens = 3;
    spec.heads = 2;
    Case c = makeCase(spec);
    CheckResult result = check(c, [&](Case &t) -> std::optional<std::string> {
      std::vector<std::unique_ptr<SparseMemory>> memory;
      std::vector<void *> addresses;
      auto rowBytes = [](const Buffer &b) {
        return static_cast<size_t>(b.layout().rowElements() *
                                   dtypeSize(b.dtype()));
      };
      auto at = [&](size_t i, const Buffer &b, int64_t token) {
        return static_cast<std::byte *>(addresses[i]) +
               token * stride * dtypeSize(b.dtype());
      };
      auto original = [](Buffer &b, int64_t token) {
        return static_cast<std::byte *>(b.data()) +
               b.layout().at(token, 0, 0) * dtypeSize(b.dtype());
      };
      std::vector<Buffer> &buffers = t.buffers();
      for (size_t i = 0; i < buffers.size(); ++i) {
        Buffer &b = buffers[i];
        addresses.push_back(b.data());
        if (!isPerToken(b, t))
          continue;
        memory.push_back(
            std::make_unique<SparseMemory>(3 * stride * dtypeSize(b.dtype())));
        if (!memory.back()->isMapped())
          return "no address space";
        addresses[i] = memory.back()->data();
        for (int64_t token = 0; token < 3; ++token)
          std::memcpy(at(i, b, token), original(b, token), rowBytes(b));
      }
      void **argv = t.argv(&addresses);
      std::vector<Arg> args = kernelArgs(t.spec().variant);
      for (size_t i = 0; i < args.size(); ++i)
        if (args[i].name.find("_stride") != std::string::npos)
          *static_cast<int64_t *>(argv[i]) = stride;
      const HostVariant &kernel = hostVariant(t.spec().variant);
      if (!kernel.error.empty())
        return kernel.error;
      if (!runOnHost(kernel.kernel.entry, argv, t.programs(kernel.vTile),
                     kernel.kernel.scratchBytes))
        return "no memory for scratch";
      for (size_t i = 0; i < buffers.size(); ++i)
        if (buffers[i].name() == "out")
          for (int64_t token = 0; token < 3; ++token)
            std::memcpy(original(buffers[i], token), at(i, buffers[i], token),
                        rowBytes(buffers[i]));
      return std::nullopt;
    });
    EXPECT_TRUE(result.passed()) << toString(result);
  }
}

// The last of 140,001 states of 128 x 128 starts beyond 2^31 elements; only its
// program instances run.
TEST(Sizes, StatesBeyond32Bits) {
  constexpr int64_t sequences = 140001, matrix = 128 * 128;
  for (Form form : {Form::Chunk, Form::Step}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant = resolved(spec.variant);
    spec.lengths = {5};
    Case c = makeCase(spec);
    CheckResult result = check(c, [&](Case &t) -> std::optional<std::string> {
      SparseMemory h0(sequences * matrix * 4), ht(sequences * matrix * 4);
      if (!h0.isMapped() || !ht.isMapped())
        return "no address space";
      std::vector<int32_t> offsets(sequences + 1, 0);
      offsets[sequences] = 5;
      int64_t last = (sequences - 1) * matrix * 4;
      std::memcpy(h0.data() + last, t.find("h0")->data(), matrix * 4);
      std::vector<void *> addresses;
      for (Buffer &buffer : t.buffers())
        addresses.push_back(buffer.name() == "h0"        ? h0.data()
                            : buffer.name() == "ht"      ? ht.data()
                            : buffer.name() == "offsets" ? offsets.data()
                                                         : buffer.data());
      void **argv = t.argv(&addresses);
      std::vector<Arg> args = kernelArgs(t.spec().variant);
      for (size_t i = 0; i < args.size(); ++i)
        if (args[i].name == "N")
          *static_cast<int64_t *>(argv[i]) = sequences;
      const HostVariant &kernel = hostVariant(t.spec().variant);
      int64_t each = t.programs(kernel.vTile); // of one sequence and head
      auto error =
          kernel.runRange(argv, (sequences - 1) * each, sequences * each);
      std::memcpy(t.find("ht")->data(), ht.data() + last, matrix * 4);
      return error;
    });
    EXPECT_TRUE(result.passed()) << toString(result);
  }
}

// Offsets that run backwards, below zero or past the buffer make results wrong,
// but no kernel leaves its buffers for them.
TEST(Sizes, BadOffsetsAreClamped) {
  for (Form form : {Form::Chunk, Form::Step})
    for (DType offsets : {DType::I32, DType::I64}) {
      CaseSpec spec;
      spec.variant.form = form;
      spec.variant.offsetDtype = offsets;
      spec.variant.keyDim = spec.variant.valueDim = 32;
      spec.variant = resolved(spec.variant);
      spec.lengths = {10, 10, 10, 10, 10, 10};
      Case c = makeCase(spec);
      double bad[] = {-3, 20, 64, 1e9, 5, -1e9, 61};
      for (int64_t n = 0; n < 7; ++n)
        c.find("offsets")->set(0, 0, n, bad[n]);
      runOrFail(c);
      for (const Buffer &buffer : c.buffers())
        EXPECT_TRUE(buffer.guardsIntact()) << buffer.name();
    }
}
