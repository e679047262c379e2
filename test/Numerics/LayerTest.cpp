// The step kernel with the layer around it: short convolutions with their
// caches and the gated norm, against the oracle. pitfalls.md STA-4, STA-8.
#include "HostKernel.h"

#include "kdac/Reference/Cache.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace kdac;
using namespace kdac::reference;

namespace {

Variant layerVariant(int64_t conv, CacheLayout layout, OutputNorm norm,
                     std::optional<DType> slots = DType::I32) {
  Variant v;
  v.form = Form::Step;
  v.keyDim = 64;
  v.valueDim = 32;
  v.conv = conv;
  v.cacheLayout = layout;
  v.norm = norm;
  v.slots = slots;
  return v;
}

/// Every part alone, every width, both layouts, with and without a pool.
std::vector<Variant> variants() {
  constexpr CacheLayout full = CacheLayout::Full,
                        history = CacheLayout::History;
  Variant raw = layerVariant(4, history, OutputNorm::Silu, DType::I64);
  raw.l2norm = false;
  raw.keyDim = 40;
  raw.valueDim = 24;
  raw.dtype = DType::F32;
  raw.stateLayout = StateLayout::KV;
  Variant head = layerVariant(3, full, OutputNorm::Sigmoid);
  head.recurrence = "gated_delta";
  head.normEps = 1e-6;
  Variant snapshots = layerVariant(4, full, OutputNorm::Sigmoid);
  snapshots.snapshots = true;
  Variant snapshotsHistory = layerVariant(3, history, OutputNorm::None);
  snapshotsHistory.snapshots = true;
  Variant log = layerVariant(4, full, OutputNorm::Sigmoid);
  log.log = true;
  Variant logHistory = layerVariant(2, history, OutputNorm::None, DType::I64);
  logHistory.log = true;
  logHistory.stateDtype = DType::BF16;
  std::vector<Variant> all = {
      snapshots,
      snapshotsHistory,
      log,
      logHistory,
      layerVariant(4, full, OutputNorm::Sigmoid),
      layerVariant(4, history, OutputNorm::None),
      layerVariant(0, full, OutputNorm::Silu),
      layerVariant(3, history, OutputNorm::Sigmoid, std::nullopt),
      layerVariant(2, full, OutputNorm::None, std::nullopt),
      layerVariant(2, history, OutputNorm::Silu),
      raw,
      head};
  for (Variant &v : all)
    v = resolved(v);
  return all;
}

CaseSpec specOf(const Variant &variant, int64_t tokens = 1) {
  CaseSpec spec;
  spec.variant = variant;
  spec.sequences = 5;
  spec.tokens = tokens;
  spec.heads = 3;
  return spec;
}

/// What a sequence leaves behind.
const std::vector<const char *> memory = {"h0", "q_cache", "k_cache",
                                          "v_cache"};

class LayerTest : public testing::TestWithParam<size_t> {
protected:
  Variant variant = variants()[GetParam()];
};

} // namespace

TEST_P(LayerTest, OneToEightTokens) {
  for (int64_t tokens : {1, 2, 3, 4, 5, 8})
    expectCorrect(specOf(variant, tokens));
}

// STA-8: fewer new tokens than the cache holds, none at all, and more.
TEST_P(LayerTest, PackedSequencesShorterThanTheCache) {
  CaseSpec spec = specOf(variant);
  spec.lengths = {1, 0, 2, 3, 0, 9};
  spec.trailing = 2;
  spec.tokenGap = 16;
  spec.cacheGap = 8;
  expectCorrect(spec);
}

TEST_P(LayerTest, WithoutCachesHistoryIsZeroAndNothingIsKept) {
  CaseSpec spec = specOf(variant, 3);
  spec.hasCaches = spec.hasInitial = spec.hasFinal = false;
  expectCorrect(spec);
}

// STA-4, the convolution's part.
TEST_P(LayerTest, FreshSequencesReadNoSlot) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant, 2);
  spec.hasSources = true;
  spec.sources.assign(5, -1);
  Case c = makeCase(spec);
  for (const char *name : {"q_cache", "k_cache", "v_cache"})
    if (const Buffer *before = c.cacheBefore(name))
      for (Buffer *cache : {const_cast<Buffer *>(before), c.find(name)})
        for (int64_t slot = 0; slot < cache->layout().tokens; ++slot)
          for (int64_t i = 0; i < cache->layout().width; ++i)
            cache->set(slot, 0, i, 1e30);
  expectCorrect(c);
  EXPECT_TRUE(std::isfinite(c.find("out")->get(0, 0, 0)));
}

TEST_P(LayerTest, BadIndicesChangeNoCache) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant);
  spec.slots = {1, 3, 1, 0, 2};
  Case c = makeCase(spec);
  expectCorrect(c); // the checked launch writes nothing
  spec.slots = {1, 300000, -8, 0, 2};
  spec.checked = false;
  expectCorrect(spec);
}

void expectSnapshotsOverTheSource(CaseSpec spec) {
  spec.sequences = 1;
  spec.slots = {2};
  for (size_t over = 0; over < 5; ++over) {
    spec.snapshots = {4, 0, -1, 3, 5};
    spec.snapshots[over] = 2;
    expectCorrect(spec);
  }
}

// The slot that a sequence starts from may be one of its snapshots', whichever.
TEST_P(LayerTest, SnapshotsOverTheSource) {
  if (!variant.snapshots)
    return;
  CaseSpec spec = specOf(variant, 5);
  expectSnapshotsOverTheSource(spec);
  spec.hasSnapshots = false;
  expectCorrect(spec);
}

// Channels of q and k belong to key heads: their caches change once, after the
// programs of all value heads have read them.
TEST_P(LayerTest, ValueHeadsShareKeyHeads) {
  CaseSpec spec = specOf(variant);
  spec.heads = 2;
  spec.valueHeads = 6;
  for (int64_t tokens : {1, 3, 6}) {
    spec.tokens = tokens;
    expectCorrect(spec);
  }
  spec.lengths = {1, 0, 2, 3, 0, 9};
  spec.trailing = 2;
  spec.cacheGap = 8;
  expectCorrect(spec);
}

TEST_P(LayerTest, SharedKeyHeadsOfFreshSequencesAndBadIndices) {
  if (!variant.slots)
    return;
  CaseSpec spec = specOf(variant, 2);
  spec.valueHeads = 6;
  spec.hasSources = true;
  spec.sources = {-1, 1, -1, 0, 4};
  spec.slots = {0, 1, 2, 3, 4};
  expectCorrect(spec); // the check names sources[3]
  spec.checked = false;
  spec.sources[3] = 3;
  spec.slots[0] = 300000;
  spec.slots[2] = -1;
  expectCorrect(spec);
}

TEST_P(LayerTest, SharedKeyHeadsWithSnapshotsOverTheSource) {
  if (!variant.snapshots)
    return;
  CaseSpec spec = specOf(variant, 5);
  spec.valueHeads = 6;
  expectSnapshotsOverTheSource(spec);
}

// Going on from a snapshot of any token equals never having gone further.
TEST_P(LayerTest, SnapshotsAreWhereTheSequenceWas) {
  if (!variant.snapshots)
    return;
  CaseSpec spec = specOf(variant, 4);
  spec.sequences = 1;
  spec.slots = {1};
  spec.snapshots = {2, 3, 4, 5};
  Case drafts = makeCase(spec);
  ASSERT_FALSE(hostVariant(variant).run(drafts));
  for (int64_t accepted = 1; accepted <= 4; ++accepted) {
    CaseSpec plain = spec;
    plain.tokens = accepted;
    plain.hasSnapshots = false;
    plain.snapshots.clear();
    Case c = makeCase(plain);
    ASSERT_FALSE(hostVariant(variant).run(c));
    for (const char *name : {"q_cache", "k_cache", "v_cache"}) {
      const Buffer &kept = *drafts.find(name), &went = *c.find(name);
      for (int64_t i = 0; i < kept.layout().width; ++i)
        ASSERT_EQ(kept.get(1 + accepted, 0, i), went.get(1, 0, i))
            << name << " after " << accepted << " tokens, element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layer, LayerTest,
                         testing::Range<size_t>(0, variants().size()),
                         [](const auto &info) {
                           return entryName(variants()[info.param]);
                         });

// A sequence in pieces equals the sequence in one go, its caches bit by bit.
TEST(Layer, PiecesEqualTheWhole) {
  for (CacheLayout layout : {CacheLayout::Full, CacheLayout::History}) {
    CaseSpec spec =
        specOf(resolved(layerVariant(4, layout, OutputNorm::Sigmoid)), 7);
    spec.sequences = 1;
    spec.slots = {2};
    Case whole = makeCase(spec);
    ASSERT_FALSE(hostVariant(spec.variant).run(whole));
    int64_t done = 0;
    std::vector<std::string> kept;
    for (int64_t tokens : {1, 1, 2, 3}) {
      spec.tokens = tokens;
      Case piece = makeCase(spec);
      for (Buffer &buffer : piece.buffers()) {
        bool hasTokens = buffer.kind() == ArgKind::Input &&
                         buffer.layout().tokens == tokens &&
                         whole.find(buffer.name())->layout().tokens == 7;
        for (int64_t t = 0; hasTokens && t < tokens; ++t)
          for (int64_t h = 0; h < buffer.layout().heads; ++h)
            for (int64_t j = 0; j < buffer.layout().width; ++j)
              buffer.set(t, h, j,
                         whole.find(buffer.name())->get(done + t, h, j));
      }
      for (size_t i = 0; i < kept.size(); ++i)
        std::memcpy(piece.find(memory[i])->data(), kept[i].data(),
                    kept[i].size());
      ASSERT_FALSE(hostVariant(spec.variant).run(piece));
      kept.clear();
      for (const char *name : memory)
        kept.emplace_back(static_cast<const char *>(piece.find(name)->data()),
                          static_cast<size_t>(piece.find(name)->bytes()));
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < 3; ++h)
          for (int64_t j = 0; j < 32; ++j)
            EXPECT_EQ(piece.find("out")->get(t, h, j),
                      whole.find("out")->get(done + t, h, j));
      done += tokens;
    }
    for (size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(std::memcmp(whole.find(memory[i])->data(), kept[i].data(),
                            kept[i].size()),
                0)
          << memory[i];
  }
}
