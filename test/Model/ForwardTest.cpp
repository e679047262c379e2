// The forward pass of both model families against the f64 reference
// (python/model_reference.py), whole and in pieces, alone and in batches.
#include "TinyModel.h"

#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

class ForwardTest : public testing::TestWithParam<const char *> {};

} // namespace

TEST_P(ForwardTest, PrefillAndGreedyDecodeAreTheReferences) {
  TinyModel model(GetParam());
  for (const Expected &e : model.expected) {
    int32_t slot = model.open();
    std::vector<float> logits = model.run(slot, e.prompt);
    for (size_t i = 0; i < e.greedy.size(); ++i) {
      EXPECT_LT(distance(logits, e.logits[i]), model.tolerance())
          << "prompt of " << e.prompt.size() << ", step " << i;
      EXPECT_EQ(best(logits), e.greedy[i]);
      logits = model.run(slot, {e.greedy[i]});
    }
    model.session->close(slot);
  }
}

TEST_P(ForwardTest, ABatchOfPromptsAndThenOfTokens) {
  TinyModel model(GetParam());
  Batch prompts;
  std::vector<int32_t> slots;
  for (const Expected &e : model.expected) {
    slots.push_back(model.open());
    prompts.add(slots.back(), e.prompt.data(),
                static_cast<int64_t>(e.prompt.size()));
  }
  Batch next = prompts;
  for (size_t step = 0; step < model.expected[0].greedy.size(); ++step) {
    auto logits =
        forward(model.config, model.weights, *model.ops, *model.session, next);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    next = Batch();
    for (size_t i = 0; i < slots.size(); ++i) {
      const Expected &e = model.expected[i];
      std::vector<float> got = model.row(*logits, static_cast<int64_t>(i));
      EXPECT_LT(distance(got, e.logits[step]), model.tolerance());
      next.add(slots[i], &e.greedy[step], 1);
    }
  }
}

/// Prompts and single tokens in one batch: the chunk form serves both.
TEST_P(ForwardTest, DecodingBesideAPrompt) {
  TinyModel model(GetParam());
  const Expected &old = model.expected[2], &fresh = model.expected[3];
  int32_t a = model.open(), b = model.open();
  model.run(a, old.prompt);
  Batch batch;
  batch.add(a, &old.greedy[0], 1);
  batch.add(b, fresh.prompt.data(), static_cast<int64_t>(fresh.prompt.size()));
  auto logits =
      forward(model.config, model.weights, *model.ops, *model.session, batch);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_LT(distance(model.row(*logits, 0), old.logits[1]), model.tolerance());
  EXPECT_LT(distance(model.row(*logits, 1), fresh.logits[0]),
            model.tolerance());
}

TEST_P(ForwardTest, AnySplitOfAPromptGivesTheSame) {
  TinyModel model(GetParam());
  const Expected &e = model.expected[3];
  auto size = static_cast<int64_t>(e.prompt.size());
  const std::vector<std::vector<int64_t>> splits = {{1},
                                                    {2},
                                                    {3},
                                                    {4},
                                                    {16},
                                                    {17},
                                                    {63},
                                                    {64},
                                                    {65},
                                                    {69},
                                                    {1, 2, 3},
                                                    {5, 6, 40},
                                                    {31, 32, 33, 34}};
  for (const auto &cuts : splits) {
    int32_t slot = model.open();
    int64_t begin = 0;
    for (int64_t cut : cuts) {
      model.run(slot, e.prompt.data() + begin, cut - begin);
      begin = cut;
    }
    std::vector<float> logits =
        model.run(slot, e.prompt.data() + begin, size - begin);
    EXPECT_LT(distance(logits, e.logits[0]), model.tolerance())
        << "first cut at " << cuts[0];
    model.session->close(slot);
  }
}

/// The fused step kernel alone, from the first token on, on recycled slots.
TEST_P(ForwardTest, TokenByTokenOnADirtySlot) {
  TinyModel model(GetParam(), 1);
  int32_t slot = model.open();
  model.run(slot, model.expected[3].prompt);
  model.session->close(slot);
  const Expected &e = model.expected[2];
  slot = model.open();
  std::vector<float> logits;
  for (int32_t token : e.prompt)
    logits = model.run(slot, {token});
  EXPECT_LT(distance(logits, e.logits[0]), model.tolerance());
}

/// 1e-5 and 1e-6 differ by less than the tolerance: an epsilon that shows tells
/// whether every norm takes the config's.
TEST_P(ForwardTest, NormsTakeTheConfigsEpsilon) {
  TinyModel model(GetParam());
  const Expected &e = model.expected[1];
  model.config.normEps = otherEps;
  EXPECT_LT(distance(model.run(model.open(), e.prompt), e.otherEpsLogits),
            model.tolerance());
  std::vector<float> other(e.otherEpsLogits.begin(), e.otherEpsLogits.end());
  EXPECT_GT(distance(other, e.logits[0]), 0.01) << "it shows";
}

/// What other programs may read: states V-first (a transposed one has the same
/// shape), and inputs of convolutions as they came out of the projection, by
/// one call of the chunk form and by steps.
TEST_P(ForwardTest, CachesAreWhatTheReferenceKeeps) {
  TinyModel model(GetParam());
  const Expected &e = model.expected[1];
  auto dim = static_cast<size_t>(model.config.kdaDim);
  ASSERT_EQ(e.state.size(), dim);
  for (bool isByToken : {false, true}) {
    int32_t slot = model.open();
    if (isByToken)
      for (int32_t token : e.prompt)
        model.run(slot, {token});
    else
      model.run(slot, e.prompt);
    KdaCache cache = model.session->kda(cachedLayer);
    auto read = [&](const void *from, int64_t perSlot, size_t count) {
      std::vector<float> values(count);
      const float *at = static_cast<const float *>(from) + slot * perSlot;
      EXPECT_TRUE(model.session->memory()
                      .read(values.data(), at, static_cast<int64_t>(count) * 4)
                      .ok());
      return values;
    };
    int64_t width = model.config.kdaWidth(), taps = model.config.convWidth;
    std::vector<float> state =
        read(cache.state, width * model.config.kdaDim, dim * dim);
    std::vector<double> right, transposed, inputs;
    for (size_t v = 0; v < dim; ++v)
      for (size_t k = 0; k < dim; ++k) {
        right.push_back(e.state[v][k]);
        transposed.push_back(e.state[k][v]);
      }
    EXPECT_LT(distance(state, right), model.tolerance());
    EXPECT_GT(distance(state, transposed), 0.1);
    for (const std::vector<double> &channel : e.conv)
      inputs.insert(inputs.end(), channel.begin(), channel.end());
    EXPECT_LT(distance(read(cache.q, width * taps, inputs.size()), inputs),
              model.tolerance());
    model.session->close(slot);
  }
}

TEST_P(ForwardTest, BadBatchesAreRefusedAndChangeNothing) {
  TinyModel model(GetParam(), 2, 64);
  int32_t slot = model.open();
  auto refusal = [&](const Batch &batch) {
    auto result =
        forward(model.config, model.weights, *model.ops, *model.session, batch);
    return result.ok() ? "accepted" : result.status().message();
  };
  std::vector<int32_t> tokens(65, 1);
  Batch batch;
  batch.add(slot, tokens.data(), 65);
  EXPECT_EQ(refusal(batch),
            "a batch of 65 tokens is larger than the session's 64");
  tokens[1] = 160;
  batch = Batch();
  batch.add(slot, tokens.data(), 2);
  EXPECT_EQ(refusal(batch), "token 160 is not in the vocabulary of 160");
  batch = Batch();
  batch.add(1, tokens.data(), 1);
  EXPECT_EQ(refusal(batch), "slot 1 is not open");
  batch = Batch();
  batch.add(7, tokens.data(), 1);
  EXPECT_EQ(refusal(batch), "slot 7 is not open");
  batch = Batch();
  batch.add(slot, tokens.data(), 1);
  batch.add(slot, tokens.data(), 1);
  EXPECT_EQ(refusal(batch), "slot 0 has two pieces of the batch");
  batch = Batch();
  batch.add(slot, tokens.data(), 0);
  EXPECT_EQ(refusal(batch).substr(0, 15), "there is no row");
  EXPECT_EQ(model.session->length(slot), 0);
}

TEST_P(ForwardTest, TheContextIsALimit) {
  TinyModel model(GetParam(), 1, 128);
  int32_t slot = model.open();
  std::vector<int32_t> tokens(128, 1);
  model.run(slot, tokens);
  model.run(slot, tokens);
  Batch batch;
  batch.add(slot, tokens.data(), 1);
  auto result =
      forward(model.config, model.weights, *model.ops, *model.session, batch);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(),
            "a sequence of 257 tokens is longer than the session's context of "
            "256");
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardTest,
                         testing::Values("48b", "k3", "wide"),
                         [](const auto &info) { return testName(info.param); });
INSTANTIATE_TEST_SUITE_P(Gpu, ForwardTest, testing::Values("48b@f32", "k3@f32"),
                         [](const auto &info) { return testName(info.param); });
