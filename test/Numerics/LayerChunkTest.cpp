// The chunk form with the layer around it: convolutions into the workspace
// before it, the gated norm of the output after it, against the oracle; and
// against the step form, one after the other. pitfalls.md STA-4, STA-8.
#include "CaseSurgery.h"
#include "HostKernel.h"

#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Tolerance.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr CacheLayout full = CacheLayout::Full, history = CacheLayout::History;

Variant chunkVariant(int64_t keyDim, int64_t valueDim, int64_t conv,
                     CacheLayout layout, OutputNorm norm,
                     std::optional<DType> slots = DType::I32) {
  Variant v;
  v.form = Form::Chunk;
  v.keyDim = keyDim;
  v.valueDim = valueDim;
  v.conv = conv;
  v.cacheLayout = layout;
  v.norm = norm;
  v.slots = slots;
  return v;
}

/// Widths of heads and of convolutions, layouts of caches and states, gates,
/// with and without a pool; heads narrower than a block of columns and wider.
std::vector<Variant> variants() {
  Variant f32 = chunkVariant(128, 64, 2, history, OutputNorm::Silu, DType::I64);
  f32.dtype = DType::F32;
  f32.stateLayout = StateLayout::KV;
  f32.gate = Gate::Softplus;
  Variant odd = chunkVariant(40, 24, 4, full, OutputNorm::Sigmoid);
  odd.dtype = DType::F16;
  odd.gate = Gate::Identity;
  odd.offsetDtype = DType::I64;
  Variant head = chunkVariant(64, 128, 3, full, OutputNorm::Sigmoid);
  head.recurrence = "gated_delta";
  head.normEps = 1e-6;
  Variant plain = chunkVariant(32, 64, 3, history, OutputNorm::None);
  plain.recurrence = "gla";
  plain.gate = Gate::Bounded;
  std::vector<Variant> all = {
      chunkVariant(128, 128, 4, full, OutputNorm::Sigmoid),
      chunkVariant(64, 32, 3, history, OutputNorm::None),
      chunkVariant(32, 32, 2, full, OutputNorm::Silu, std::nullopt),
      chunkVariant(64, 64, 4, history, OutputNorm::Sigmoid, std::nullopt),
      chunkVariant(32, 128, 0, full, OutputNorm::Silu),
      chunkVariant(128, 32, 2, history, OutputNorm::None, std::nullopt),
      f32,
      odd,
      head,
      plain};
  for (Variant &v : all)
    v = resolved(v);
  return all;
}

CaseSpec specOf(const Variant &variant, int64_t tokens = 1) {
  CaseSpec spec;
  spec.variant = variant;
  spec.sequences = 3;
  spec.tokens = tokens;
  spec.heads = 2;
  return spec;
}

class LayerChunkTest : public testing::TestWithParam<size_t> {
protected:
  Variant variant = variants()[GetParam()];
};

} // namespace

TEST_P(LayerChunkTest, Tails) {
  for (int64_t tokens : {1, 2, 3, 4, 31, 33, 130, 200})
    expectCorrect(specOf(variant, tokens));
}

// STA-8: sequences of all lengths, shorter than the cache and empty ones too;
// more value heads than key heads.
TEST_P(LayerChunkTest, PackedSequencesOfEveryLength) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {0, 1, 2, 3, 33, 0, 4, 131, 5, 0};
  spec.trailing = 2;
  spec.tokenGap = 16;
  spec.cacheGap = 8;
  spec.valueHeads = 4;
  expectCorrect(spec);
}

TEST_P(LayerChunkTest, WithoutCachesHistoryIsZeroAndNothingIsKept) {
  CaseSpec spec = specOf(variant, 35);
  spec.hasCaches = spec.hasInitial = spec.hasFinal = false;
  expectCorrect(spec);
}

// STA-4, the convolution's part.
TEST_P(LayerChunkTest, FreshSequencesReadNoSlot) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant, 5);
  spec.hasSources = true;
  spec.sources.assign(3, -1);
  Case c = makeCase(spec);
  for (const char *name : {"q_cache", "k_cache", "v_cache"})
    if (const Buffer *before = c.cacheBefore(name))
      for (Buffer *cache : {const_cast<Buffer *>(before), c.find(name)})
        for (int64_t slot = 0; slot < cache->layout().tokens; ++slot)
          for (int64_t i = 0; i < cache->layout().width; ++i)
            cache->set(slot, 0, i, variant.dtype == DType::F16 ? 6e4 : 1e30);
  expectCorrect(c);
  EXPECT_TRUE(std::isfinite(c.find("out")->get(0, 0, 0)));
}

TEST_P(LayerChunkTest, BadIndicesChangeNothing) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant, 34);
  spec.slots = {1, 3, 1};
  expectCorrect(spec); // the checked launch writes nothing
  spec.slots = {1, 300000, -8};
  spec.checked = false;
  expectCorrect(spec);
}

TEST_P(LayerChunkTest, SourcesApart) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant);
  spec.lengths = {2, 0, 40, 1};
  spec.hasSources = true;
  expectCorrect(spec);
}

TEST_P(LayerChunkTest, InstancesRunInAnyOrder) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {300, 0, 64, 2};
  Case forwards = makeCase(spec), backwards = makeCase(spec);
  ASSERT_FALSE(hostVariant(variant).run(forwards));
  ASSERT_FALSE(hostVariant(variant).runBackwards(backwards));
  for (size_t i = 0; i < forwards.buffers().size(); ++i) {
    const Buffer &x = forwards.buffers()[i], &y = backwards.buffers()[i];
    EXPECT_EQ(
        std::memcmp(x.whole(), y.whole(), static_cast<size_t>(x.wholeBytes())),
        0)
        << x.name();
  }
}

INSTANTIATE_TEST_SUITE_P(LayerChunk, LayerChunkTest,
                         testing::Range<size_t>(0, variants().size()),
                         [](const auto &info) {
                           return entryName(variants()[info.param]);
                         });

namespace {

/// A part of a sequence, in either form.
struct Part {
  Form form;
  int64_t tokens;
};

/// One sequence in parts, each beginning with what the part before it left.
class InParts {
public:
  InParts(const Variant &variant, std::vector<Part> parts)
      : variant(variant), parts(std::move(parts)) {
    CaseSpec spec = specOf(variant);
    spec.sequences = 1;
    if (variant.slots)
      spec.slots = {2};
    for (const Part &part : this->parts)
      spec.tokens += part.tokens;
    spec.tokens -= 1;
    whole.emplace(makeCase(spec));
  }

  /// Runs the whole and the parts. The outputs of the parts replace those of
  /// the whole, whose own are `wholeOut`.
  void run() {
    ASSERT_FALSE(hostVariant(variant).run(*whole));
    const Buffer &out = *whole->find("out");
    for (int64_t t = 0; t < whole->tokens(); ++t)
      wholeOut.append(reinterpret_cast<const char *>(rowOf(out, t)),
                      rowBytes(out));
    for (const char *name : memoryNames())
      wholeMemory.push_back(bytesOf(*whole, name));
    int64_t done = 0;
    for (const Part &part : parts) {
      runPart(part, done);
      done += part.tokens;
    }
  }

  std::vector<const char *> memoryNames() const {
    const char *state = variant.slots ? "h0" : "ht";
    return {state, "q_cache", "k_cache", "v_cache"};
  }

  Variant variant;
  std::vector<Part> parts;
  std::optional<Case> whole;
  std::string wholeOut;
  std::vector<std::string> wholeMemory, memory; ///< afterwards, memoryNames()

private:
  static std::string bytesOf(const Case &c, const char *name) {
    const Buffer &buffer = *c.find(name);
    return std::string(static_cast<const char *>(buffer.data()),
                       static_cast<size_t>(buffer.bytes()));
  }

  void runPart(const Part &part, int64_t done) {
    CaseSpec spec = whole->spec();
    spec.tokens = part.tokens;
    spec.variant.form = part.form;
    Case c = makeCase(spec);
    copyTokens(*whole, done, c, 0, part.tokens);
    for (size_t i = 0; i < memory.size(); ++i) {
      const char *name = memoryNames()[i];
      std::memcpy(c.find(i == 0 ? "h0" : name)->data(), memory[i].data(),
                  memory[i].size());
    }
    if (memory.empty()) { // as the whole began
      std::memcpy(
          c.find("h0")->data(),
          (variant.slots ? whole->poolBefore() : whole->find("h0"))->data(),
          static_cast<size_t>(c.find("h0")->bytes()));
      for (const char *name : {"q_cache", "k_cache", "v_cache"})
        std::memcpy(c.find(name)->data(), whole->cacheBefore(name)->data(),
                    static_cast<size_t>(c.find(name)->bytes()));
    }
    ASSERT_FALSE(hostVariant(spec.variant).run(c));
    memory.clear();
    for (const char *name : memoryNames())
      memory.push_back(bytesOf(c, name));
    copyRows(*c.find("out"), 0, *whole->find("out"), done, part.tokens);
    expectSameConvolution(c, part, done);
  }

  /// Convolved rows do not depend on where a sequence is cut, not in a bit.
  void expectSameConvolution(const Case &c, const Part &part, int64_t done) {
    if (part.form != Form::Chunk)
      return;
    size_t row = static_cast<size_t>(
        2 * (c.heads() * (2 * variant.keyDim + variant.valueDim)));
    auto *x = static_cast<const char *>(c.workspaceAddress());
    auto *y = static_cast<const char *>(whole->workspaceAddress());
    for (int64_t t = 0; t < part.tokens; ++t)
      ASSERT_EQ(std::memcmp(x + static_cast<size_t>(t) * row,
                            y + static_cast<size_t>(done + t) * row, row),
                0)
          << "convolved token " << done + t;
  }
};

/// Runs parts and judges them as one sequence by the oracle.
void expectPartsCorrect(const Variant &variant, std::vector<Part> parts) {
  InParts sequence(variant, std::move(parts));
  sequence.run();
  Case &c = *sequence.whole;
  for (size_t i = 1; i < sequence.memory.size(); ++i)
    EXPECT_EQ(sequence.memory[i], sequence.wholeMemory[i])
        << sequence.memoryNames()[i];
  // The oracle reads what was there before the whole ran.
  Case fresh = makeCase(c.spec());
  Comparison out =
      compare(*c.find("out"), run(operandsOf(fresh)).out, c.coveredTokens());
  Tolerance bound =
      toleranceOf(variant, difficultyOf(variant, *findRecipe(c.spec().recipe)));
  setBounds(out, bound.out, variant.valueDim, bound.outRow);
  EXPECT_TRUE(out.passed()) << describe(c.spec()) << ": " << toString(out);
}

std::vector<Variant> partVariants() {
  std::vector<Variant> all;
  for (int64_t taps : {2, 3, 4})
    for (CacheLayout layout : {full, history})
      all.push_back(resolved(chunkVariant(
          64, 32, taps, layout, taps == 3 ? OutputNorm::None : OutputNorm::Silu,
          taps == 2 ? std::nullopt : std::optional(DType::I32))));
  return all;
}

} // namespace

// Pieces shorter than the cache, empty ones, and others.
TEST(LayerChunk, PiecesEqualTheWhole) {
  constexpr Form chunk = Form::Chunk;
  for (const Variant &variant : partVariants()) {
    expectPartsCorrect(variant, {{chunk, 1},
                                 {chunk, 0},
                                 {chunk, 2},
                                 {chunk, 3},
                                 {chunk, 33},
                                 {chunk, 1},
                                 {chunk, 130}});
    expectPartsCorrect(variant, {{chunk, 33}, {chunk, 3}, {chunk, 2}});
  }
}

TEST(LayerChunk, PrefillThenStepsEqualsOnePrefill) {
  constexpr Form chunk = Form::Chunk, step = Form::Step;
  for (const Variant &variant : partVariants()) {
    expectPartsCorrect(variant, {{chunk, 70}, {step, 1}, {step, 1}, {step, 4}});
    expectPartsCorrect(variant,
                       {{chunk, 2}, {step, 1}, {chunk, 40}, {step, 2}});
  }
}

// Pieces that end with chunks leave the state as the whole does, bit by bit.
TEST(LayerChunk, PiecesOfWholeChunksEqualTheWholeBitwise) {
  constexpr Form chunk = Form::Chunk;
  for (const Variant &variant : partVariants()) {
    InParts sequence(variant, {{chunk, 64}, {chunk, 32}, {chunk, 50}});
    sequence.run();
    EXPECT_EQ(sequence.memory, sequence.wholeMemory);
    const Buffer &out = *sequence.whole->find("out");
    for (int64_t t = 0; t < sequence.whole->tokens(); ++t)
      ASSERT_EQ(std::memcmp(rowOf(out, t),
                            sequence.wholeOut.data() +
                                static_cast<size_t>(t) * rowBytes(out),
                            rowBytes(out)),
                0)
          << "token " << t;
  }
}
