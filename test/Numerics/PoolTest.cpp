// State pools: random slots with every other slot bitwise unchanged, padding,
// bad indices, checked launches, snapshots and rollback. pitfalls.md STA-1 to
// STA-9.
#include "HostKernel.h"

#include "kdac/Reference/Pool.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sys/mman.h>
#include <tuple>

using namespace kdac;
using namespace kdac::reference;

namespace {

Variant poolVariant(Form form, DType slots = DType::I32) {
  Variant v;
  v.form = form;
  v.keyDim = 64;
  v.valueDim = 32;
  v.slots = slots;
  return v;
}

Variant withSnapshots(Variant v) {
  v.snapshots = true;
  return v;
}

Variant withLog(Variant v) {
  v.log = true;
  return v;
}

/// Every part that touches a pool at least twice.
std::vector<Variant> variants() {
  Variant bf16 = poolVariant(Form::Step, DType::I64);
  bf16.stateDtype = DType::BF16;
  bf16.stateLayout = StateLayout::KV;
  bf16.gate = Gate::Softplus;
  Variant head = poolVariant(Form::Step);
  head.recurrence = "gated_delta";
  head.keyDim = 40; // padded
  Variant pair = poolVariant(Form::Step);
  pair.recurrence = "dplr";
  Variant constant = poolVariant(Form::Step);
  constant.recurrence = "retention";
  Variant chunk = poolVariant(Form::Chunk);
  Variant chunkKv = poolVariant(Form::Chunk, DType::I64);
  chunkKv.stateLayout = StateLayout::KV;
  std::vector<Variant> all = {
      poolVariant(Form::Step), bf16, head, pair, constant, chunk, chunkKv};
  for (const Variant &v : {all[0], bf16, pair})
    all.push_back(withSnapshots(v));
  for (const Variant &v : {all[0], bf16, head, pair, constant})
    all.push_back(withLog(v));
  for (Variant &v : all)
    v = resolved(v);
  return all;
}

CaseSpec specOf(const Variant &variant) {
  CaseSpec spec;
  spec.variant = variant;
  spec.sequences = 5;
  spec.tokens = variant.form == Form::Chunk ? 37 : 3;
  spec.heads = 2;
  spec.valueHeads = variant.row().erase == Erase::Pair ? 2 : 4;
  return spec;
}

void runOrFail(Case &c) {
  std::optional<std::string> error = hostVariant(c.spec().variant).run(c);
  ASSERT_FALSE(error) << *error;
}

size_t position(const Case &c, std::string_view name) {
  std::vector<Arg> args = kernelArgs(c.spec().variant);
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == name)
      return i;
  ADD_FAILURE() << "no argument " << name;
  return 0;
}

/// Bytes of one state.
std::string stateOf(const Case &c, int64_t slot, int64_t head) {
  const Buffer &pool = *c.poolAfter();
  int64_t size = dtypeSize(pool.dtype());
  auto *first = static_cast<const char *>(pool.data()) +
                pool.layout().at(c.poolRow(slot, head), 0, 0) * size;
  return std::string(first,
                     static_cast<size_t>(pool.layout().rowElements() * size));
}

/// Copies `count` tokens from token `from` of one case to token `to` of
/// another, in every tensor that has tokens.
void copyTokens(const Case &source, int64_t from, Case &target, int64_t to,
                int64_t count) {
  for (Buffer &buffer : target.buffers()) {
    if (buffer.kind() != ArgKind::Input || buffer.name() == "h0" ||
        buffer.dtype() == DType::I32 || buffer.dtype() == DType::I64)
      continue;
    const Buffer &other = *source.find(buffer.name());
    bool hasTokens = buffer.layout().tokens == target.tokens() &&
                     other.layout().tokens == source.tokens() &&
                     buffer.name() != "A_log" && buffer.name() != "dt_bias";
    for (int64_t t = 0; t < (hasTokens ? count : other.layout().tokens); ++t)
      for (int64_t h = 0; h < other.layout().heads; ++h)
        for (int64_t j = 0; j < other.layout().width; ++j)
          buffer.set(hasTokens ? to + t : t, h, j,
                     other.get(hasTokens ? from + t : t, h, j));
  }
}

class PoolTest : public testing::TestWithParam<size_t> {
protected:
  Variant variant = variants()[GetParam()];
};

} // namespace

TEST_P(PoolTest, RandomSlotsInPlaceAndBeside) {
  for (bool inPlace : {true, false})
    for (bool hasSources : {false, true}) {
      CaseSpec spec = specOf(variant);
      spec.inPlace = inPlace;
      spec.hasSources = hasSources;
      expectCorrect(spec);
    }
}

// STA-6: every variant takes what every other takes.
TEST_P(PoolTest, PitchesAndPackedSequences) {
  CaseSpec spec = specOf(variant);
  spec.headGap = 24;
  spec.slotGap = 1;
  spec.lengths = {2, 0, 5, 1, 0, 8};
  spec.trailing = 2;
  expectCorrect(spec);
  spec.lengths = {63};
  spec.heads = spec.valueHeads = 1;
  expectCorrect(spec);
}

TEST_P(PoolTest, WithoutSlotsSequencesOwnTheirOrder) {
  CaseSpec spec = specOf(variant);
  spec.hasSlots = false;
  expectCorrect(spec);
}

// STA-4, STA-11: a fresh sequence never reads its recycled slot, and a final
// state that nobody wants is not written.
TEST_P(PoolTest, RecycledSlotIsNotRead) {
  CaseSpec spec = specOf(variant);
  spec.hasSources = true;
  spec.sources.assign(5, -1);
  Case c = makeCase(spec);
  auto poison = [](Buffer &pool) {
    for (int64_t row = 0; row < pool.layout().tokens; ++row)
      for (int64_t i = 0; i < pool.layout().width; ++i)
        pool.set(row, 0, i, NAN);
  };
  poison(*c.find("h0"));
  poison(const_cast<Buffer &>(*c.poolBefore()));
  expectCorrect(c);
  spec.hasFinal = false;
  expectCorrect(spec);
}

// Never a wild access: what is no slot is skipped, as padding is.
TEST_P(PoolTest, IndicesOutOfRangeAreSkipped) {
  CaseSpec spec = specOf(variant);
  spec.checked = false;
  spec.slots = {3, 100000000, -7, 2147483647, 0};
  expectCorrect(spec);
  spec.slots = {3, makeCase(spec).poolSlots(), 2, -1, 0}; // just past the pool
  expectCorrect(spec);
  if (variant.slots == DType::I32)
    return;
  spec.slots = {3, int64_t(1) << 40, -(int64_t(1) << 50), 1, 0};
  expectCorrect(spec);
}

TEST_P(PoolTest, CheckedLaunchNamesTheIndexAndWritesNothing) {
  struct Row {
    std::vector<int64_t> slots, sources;
    int64_t word;
  };
  for (const Row &row :
       {Row{{0, 1, -1, 2, -1}, {}, -1}, Row{{0, 1, 99, 2, 3}, {}, 8 * 2 + 0},
        Row{{0, 1, 2, 3, -2}, {}, 8 * 4 + 0},
        Row{{4, 1, 2, 4, 3}, {}, 8 * 3 + 1},
        Row{{4, 1, 1, 2, 3}, {}, 8 * 2 + 1},
        Row{{4, 1, 0, 2, 4}, {}, 8 * 4 + 1},
        Row{{0, 1, 2, 3, 4}, {5, 6, 77, -1, -2}, 8 * 2 + 2}}) {
    for (bool inPlace : {true, false}) {
      CaseSpec spec = specOf(variant);
      spec.slots = row.slots;
      spec.hasSources = !row.sources.empty();
      spec.sources = row.sources;
      spec.hasSnapshots = row.sources.empty();
      spec.inPlace = inPlace;
      Case c = makeCase(spec);
      EXPECT_EQ(expectedStatus(c), row.word);
      expectCorrect(c);
    }
  }
  if (variant.snapshots)
    return;
  CaseSpec spec = specOf(variant);
  spec.hasSources = true;
  spec.slots = {0, 1, 2, 3, 4};
  spec.sources = {5, 3, 2, -1, 4};
  Case c = makeCase(spec);
  EXPECT_EQ(expectedStatus(c), 8 * 1 + 3);
  expectCorrect(c);
}

TEST(Pool, CheckedLaunchNamesTheSnapshot) {
  for (auto [slots, snapshots, word] :
       {std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t>(
            {0, 1}, {0, 2, 1, 3}, -1), // its own slot is read before
        {{0, 1}, {2, 3, 4, 1000}, 8 * 3 + 4},
        {{0, 1}, {2, 3, 4, 2}, 8 * 3 + 5},
        {{0, 1}, {2, 3, 3, 4}, 8 * 2 + 5},
        {{0, 1}, {2, 1, 4, 3}, 8 * 1 + 5},
        {{0, -1}, {-1, -1, -1, -1}, -1}}) {
    CaseSpec spec = specOf(resolved(withSnapshots(poolVariant(Form::Step))));
    spec.sequences = 2;
    spec.tokens = 2;
    spec.slots = slots;
    spec.snapshots = snapshots;
    for (bool packed : {false, true}) {
      if (packed)
        spec.lengths = {2, 2};
      Case c = makeCase(spec);
      EXPECT_EQ(expectedStatus(c), word);
      expectCorrect(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pool, PoolTest,
                         testing::Range<size_t>(0, variants().size()),
                         [](const auto &info) {
                           return entryName(variants()[info.param]);
                         });

// STA-2: slots beyond 2^31 elements, in a pool of which only pages in use
// exist.
TEST(Pool, SlotOffsetsHave64Bits) {
  CaseSpec spec = specOf(resolved(poolVariant(Form::Step)));
  spec.sequences = 1;
  spec.slots = {3};
  Case c = makeCase(spec);
  int64_t pitch = (int64_t(1) << 30) + 64, bytes = 4 * pitch * 4;
  void *memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  void **argv = c.argv();
  *static_cast<void **>(argv[position(c, "h0")]) = memory;
  *static_cast<void **>(argv[position(c, "ht")]) = memory;
  *static_cast<int64_t *>(argv[position(c, "slot_pitch")]) = pitch;
  *static_cast<int64_t *>(argv[position(c, "head_pitch")]) = 64 * 32;
  const HostVariant &host = hostVariant(spec.variant);
  ASSERT_EQ(host.error, "");
  ASSERT_TRUE(runOnHost(host.kernel.entry, argv, c.programs(host.vTile),
                        host.kernel.scratchBytes));
  double sum = 0;
  auto *state = static_cast<float *>(memory) + 3 * pitch;
  for (int64_t i = 0; i < 4 * 64 * 32; ++i)
    sum += std::fabs(state[i]);
  EXPECT_GT(sum, 0.0);
  EXPECT_EQ(*static_cast<float *>(memory), 0.0f);
  munmap(memory, static_cast<size_t>(bytes));
}

// Snapshots are the states of token-by-token decoding, bit by bit.
TEST(Pool, SnapshotsEqualSingleSteps) {
  for (int64_t tokens = 1; tokens <= 8; ++tokens) {
    CaseSpec spec = specOf(resolved(withSnapshots(poolVariant(Form::Step))));
    spec.sequences = 2;
    spec.tokens = tokens;
    Case verify = makeCase(spec);
    runOrFail(verify);
    spec.tokens = 1;
    spec.variant = resolved(poolVariant(Form::Step));
    spec.slots = {2, 0};
    Case single = makeCase(spec);
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t head = 0; head < 4; ++head)
        for (int64_t i = 0; i < 64 * 32; ++i)
          single.find("h0")->set(
              single.poolRow(spec.slots[n], head), 0, i,
              verify.find("h0")->get(verify.poolRow(verify.slots()[n], head), 0,
                                     i));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t n = 0; n < 2; ++n)
        copyTokens(verify, n * tokens + t, single, n, 1);
      runOrFail(single);
      for (int64_t n = 0; n < 2; ++n) {
        int64_t kept = verify.snapshots()[n * tokens + t];
        for (int64_t head = 0; verify.isSlot(kept) && head < 4; ++head)
          EXPECT_TRUE(stateOf(verify, kept, head) ==
                      stateOf(single, spec.slots[n], head))
              << "token " << t << " of " << tokens;
        for (int64_t head = 0; head < 4; ++head)
          for (int64_t j = 0; j < 32; ++j)
            EXPECT_EQ(verify.find("out")->get(n * tokens + t, head, j),
                      single.find("out")->get(n, head, j));
      }
    }
  }
}

// A call that keeps a log leaves every slot alone.
TEST(Pool, LogsLeaveThePoolAlone) {
  for (int64_t tokens : {0, 1, 4, 8}) {
    CaseSpec spec = specOf(resolved(withLog(poolVariant(Form::Step))));
    spec.tokens = tokens;
    spec.commits = false;
    expectCorrect(spec);
  }
}

// Commits of every prefix, bit by bit; counts beyond both ends are clamped.
TEST(Pool, CommitsEqualSingleSteps) {
  for (int64_t tokens = 1; tokens <= 8; ++tokens)
    for (int64_t accepted = -1; accepted <= tokens + 1; ++accepted) {
      CaseSpec spec = specOf(resolved(withLog(poolVariant(Form::Step))));
      spec.sequences = 2;
      spec.tokens = tokens;
      spec.accepted = {accepted, tokens - accepted};
      Case draft = makeCase(spec);
      runOrFail(draft);
      CaseSpec one = specOf(resolved(poolVariant(Form::Step)));
      one.sequences = 2;
      one.tokens = 1;
      one.slots = {2, 0};
      Case single = makeCase(one);
      for (int64_t n = 0; n < 2; ++n)
        for (int64_t head = 0; head < 4; ++head)
          for (int64_t i = 0; i < 64 * 32; ++i)
            single.find("h0")->set(
                single.poolRow(one.slots[n], head), 0, i,
                draft.poolBefore()->get(draft.poolRow(draft.slots()[n], head),
                                        0, i));
      for (int64_t t = 0; t <= tokens; ++t) {
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t head = 0; head < 4; ++head)
            if (t == std::clamp<int64_t>(spec.accepted[n], 0, tokens))
              EXPECT_TRUE(stateOf(draft, draft.slots()[n], head) ==
                          stateOf(single, one.slots[n], head))
                  << spec.accepted[n] << " of " << tokens;
        if (t == tokens)
          break;
        for (int64_t n = 0; n < 2; ++n)
          copyTokens(draft, n * tokens + t, single, n, 1);
        runOrFail(single);
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t head = 0; head < 4; ++head)
            for (int64_t j = 0; j < 32; ++j)
              EXPECT_EQ(draft.find("out")->get(n * tokens + t, head, j),
                        single.find("out")->get(n, head, j));
      }
    }
}

// STA-9: verify 5 tokens, accept some, go on from the snapshot of the last one
// accepted: equal to decoding that never speculated.
TEST(Pool, RollbackEqualsPlainDecode) {
  Variant variant = resolved(withSnapshots(poolVariant(Form::Step)));
  for (int64_t accepted : {0, 1, 3, 4, 5}) {
    CaseSpec spec = specOf(variant);
    spec.sequences = 1;
    spec.tokens = 5;
    spec.slots = {6};
    spec.snapshots = {0, 1, 2, 3, 4};
    Case draft = makeCase(spec);
    runOrFail(draft);
    // Three more tokens from there.
    spec.tokens = 3;
    spec.hasSources = true;
    spec.sources = {accepted == 0 ? 6 : accepted - 1};
    spec.snapshots = {5, -1, 7};
    spec.seed = 7;
    Case more = makeCase(spec);
    std::memcpy(more.find("h0")->data(), draft.find("h0")->data(),
                static_cast<size_t>(std::min(more.find("h0")->bytes(),
                                             draft.find("h0")->bytes())));
    copyTokens(draft, 0, more, 0, 0); // A_log and dt_bias
    runOrFail(more);
    spec = specOf(variant);
    spec.sequences = 1;
    spec.tokens = accepted + 3;
    spec.slots = {1};
    spec.hasSnapshots = false;
    Case plain = makeCase(spec);
    copyTokens(draft, 0, plain, 0, accepted);
    copyTokens(more, 0, plain, accepted, 3);
    for (int64_t head = 0; head < 4; ++head)
      for (int64_t i = 0; i < 64 * 32; ++i)
        plain.find("h0")->set(
            plain.poolRow(1, head), 0, i,
            draft.poolBefore()->get(draft.poolRow(6, head), 0, i));
    runOrFail(plain);
    for (int64_t head = 0; head < 4; ++head)
      EXPECT_TRUE(stateOf(more, 7, head) == stateOf(plain, 1, head))
          << accepted << " accepted";
  }
}

// STA-1: a prompt in chunks, then steps, against one long prompt.
TEST(Pool, PrefillThenStepsEqualsOnePrefill) {
  CaseSpec spec = specOf(resolved(poolVariant(Form::Chunk)));
  spec.sequences = 1;
  spec.tokens = 103;
  spec.slots = {1};
  Case whole = makeCase(spec);
  std::vector<std::pair<Form, int64_t>> parts = {
      {Form::Chunk, 64}, {Form::Chunk, 35}, {Form::Step, 1}, {Form::Step, 3}};
  std::string pool(static_cast<const char *>(whole.find("h0")->data()),
                   static_cast<size_t>(whole.find("h0")->bytes()));
  runOrFail(whole);
  int64_t done = 0;
  for (auto [form, tokens] : parts) {
    spec.variant = resolved(poolVariant(form));
    spec.tokens = tokens;
    Case part = makeCase(spec);
    ASSERT_EQ(static_cast<size_t>(part.find("h0")->bytes()), pool.size());
    std::memcpy(part.find("h0")->data(), pool.data(), pool.size());
    copyTokens(whole, done, part, 0, tokens);
    runOrFail(part);
    std::memcpy(pool.data(), part.find("h0")->data(), pool.size());
    done += tokens;
  }
  double error = 0, norm = 0;
  auto *last = reinterpret_cast<const float *>(pool.data());
  for (int64_t head = 0; head < 4; ++head)
    for (int64_t i = 0; i < 64 * 32; ++i) {
      double want = whole.find("h0")->get(whole.poolRow(1, head), 0, i);
      double got =
          last[whole.find("h0")->layout().at(whole.poolRow(1, head), 0, i)];
      error += (want - got) * (want - got);
      norm += want * want;
    }
  EXPECT_EQ(done, 103);
  EXPECT_LT(std::sqrt(error / norm),
            toleranceOf(whole.spec().variant, Difficulty::Plain).state);
}
