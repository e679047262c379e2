// Which variant takes the widths of a config; which keys of a call are expanded
// together.
#include "../../lib/Model/AttentionCall.h"

#include <gtest/gtest.h>

using namespace kdac;
using namespace kdac::model;

namespace {

/// Pieces of these pasts and rows.
PromptPlan planOf(std::vector<std::pair<int64_t, int64_t>> sizes,
                  int64_t most) {
  std::vector<Piece> pieces;
  for (auto [past, rows] : sizes)
    pieces.push_back({0, past, 0, rows});
  PromptPlan plan;
  plan.make(pieces.data(), static_cast<int64_t>(pieces.size()), most);
  return plan;
}

} // namespace

TEST(PromptPlan, KeysOfSeveralPiecesAreExpandedTogether) {
  PromptPlan plan = planOf({{0, 30}, {50, 10}, {0, 10}}, 100);
  ASSERT_EQ(plan.blocks.size(), 1u);
  const PromptBlock &block = plan.blocks[0];
  EXPECT_EQ(block.piece, 0);
  EXPECT_EQ(block.pieces, 3);
  EXPECT_EQ(block.longest, 30);
  EXPECT_EQ(block.keys, 100);
  EXPECT_EQ(block.later, 0);
  EXPECT_EQ(plan.keyOffsets, (std::vector<int32_t>{0, 30, 90, 100}));
}

TEST(PromptPlan, MoreThanABlockHoldsBeginsANewOne) {
  PromptPlan plan = planOf({{0, 60}, {0, 41}, {0, 59}}, 100);
  ASSERT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.blocks[1].piece, 1);
  EXPECT_EQ(plan.blocks[1].pieces, 2);
  EXPECT_EQ(plan.blocks[1].offsets, 2);
  EXPECT_EQ(plan.keyOffsets, (std::vector<int32_t>{0, 60, 0, 41, 100}));
}

TEST(PromptPlan, SingleTokensHaveNoBlock) {
  PromptPlan plan = planOf({{70, 1}, {0, 20}, {5, 1}, {0, 20}}, 100);
  ASSERT_EQ(plan.blocks.size(), 2u);
  EXPECT_EQ(plan.blocks[0].piece, 1);
  EXPECT_EQ(plan.blocks[0].pieces, 1);
  EXPECT_EQ(plan.blocks[1].piece, 3);
  EXPECT_TRUE(planOf({{70, 1}}, 100).blocks.empty());
}

TEST(PromptPlan, LongPiecesHaveBlocksOfTheirOwn) {
  PromptPlan plan = planOf({{0, 20}, {150, 60}, {0, 20}}, 100);
  ASSERT_EQ(plan.blocks.size(), 5u);
  for (int64_t i = 0; i < 3; ++i) {
    const PromptBlock &block = plan.blocks[static_cast<size_t>(i) + 1];
    EXPECT_EQ(block.piece, 1);
    EXPECT_EQ(block.first, 100 * i);
    EXPECT_EQ(block.keys, i < 2 ? 100 : 10);
    EXPECT_EQ(block.later, 210 - block.first - block.keys);
  }
  EXPECT_EQ(plan.blocks[4].piece, 2);
  EXPECT_EQ(plan.blocks[4].pieces, 1);
  EXPECT_LE(static_cast<int64_t>(plan.keyOffsets.size()),
            PromptPlan::mostOffsets(3, 210, 100));
}

//===-- Widths
//-------------------------------------------------------------===//

namespace {

ModelConfig configOf(int64_t rank, int64_t nope, int64_t rope, int64_t value) {
  ModelConfig config;
  config.name = "odd";
  config.latentRank = rank;
  config.nopeDim = nope;
  config.ropeDim = rope;
  config.valueDim = value;
  return config;
}

constexpr auto keyDimOf = [](const StatusOr<const PackVariant *> &found) {
  return found.ok() ? (*found)->variant.keyDim : -1;
};

} // namespace

TEST(AttentionCall, TheNarrowestVariantThatHoldsTheConfig) {
  auto pack = PackReader::open(KDAC_RUN_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  for (auto [config, attention, prompt] :
       {std::tuple(configOf(32, 16, 8, 24), 128, 128),
        {configOf(64, 64, 64, 64), 128, 128},
        {configOf(512, 128, 64, 128), 576, 192},
        {configOf(65, 16, 0, 65), 576, 192},
        {configOf(64, 136, 8, 24), 128, 320},
        {configOf(513, 16, 65, 24), 1280, 1280}}) {
    EXPECT_EQ(keyDimOf(selectAttention(*pack, Place(), config, Element::F32)),
              attention);
    EXPECT_EQ(keyDimOf(selectPrompt(*pack, Place(), config, Element::F32)),
              prompt);
  }
}

TEST(AttentionCall, OfWiderRowsTheErrorSaysWhatWouldDo) {
  auto pack = PackReader::open(KDAC_RUN_GPU_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  DeviceInfo hopper = {"Fake GPU", "1", 9, 0, 132, 232448, 1 << 20};
  ModelConfig wide = configOf(520, 192, 64, 250);
  for (Element type : {Element::BF16, Element::F32}) {
    std::string suffix = type == Element::BF16 ? ".bf16.sm_90a" : ".f32.sm_90a";
    EXPECT_EQ(
        selectAttention(*pack, Place{&hopper}, wide, type).status().message(),
        "odd: kv_lora_rank = 520 and qk_rope_head_dim = 64: "
        "attention.k576v512" +
            suffix +
            " is the widest that the pack has; use a pack with "
            "attention.k640v576" +
            suffix);
    EXPECT_EQ(
        selectPrompt(*pack, Place{&hopper}, wide, type).status().message(),
        "odd: qk_nope_head_dim = 192, v_head_dim = 250 and qk_rope_head_dim = "
        "64: prompt.k192v128" +
            suffix +
            " is the widest that the pack has; use a pack with "
            "prompt.k320v256" +
            suffix);
  }
}
