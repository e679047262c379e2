// Continuous batching against single requests and the reference.
#include "kdac/Model/Generate.h"
#include "TinyModel.h"

using namespace kdac;
using namespace kdac::model;

namespace {

class GenerateTest : public testing::TestWithParam<const char *> {
protected:
  std::vector<GenerateRequest> requestsOf(const TinyModel &model) {
    std::vector<GenerateRequest> requests;
    for (const Expected &e : model.expected)
      requests.push_back(
          {e.prompt, static_cast<int64_t>(e.greedy.size()), {}, -1, false});
    return requests;
  }
  StatusOr<std::vector<GenerateResult>>
  run(TinyModel &model, const std::vector<GenerateRequest> &requests,
      std::vector<int64_t> stops = {}, GenerateStats *stats = nullptr) {
    return generate(model.config, model.weights, *model.ops, *model.session,
                    requests, stops, nullptr, stats);
  }
};

} // namespace

/// Fewer slots than requests, calls smaller than prompts: always the same text.
TEST_P(GenerateTest, SlotsAndCallSizesDoNotMatter) {
  for (int64_t slots : {1, 2, 6})
    for (int64_t tokens : {7, 64, 128}) {
      TinyModel model(GetParam(), slots, tokens);
      GenerateStats stats;
      auto results = run(model, requestsOf(model), {}, &stats);
      ASSERT_TRUE(results.ok()) << results.status().message();
      for (size_t i = 0; i < results->size(); ++i)
        EXPECT_EQ((*results)[i].tokens, model.expected[i].greedy)
            << slots << " slots, " << tokens << " tokens a call";
      EXPECT_EQ(stats.newTokens, 32);
      EXPECT_EQ(stats.promptTokens, 109);
      EXPECT_FALSE(model.session->isOpen(0));
    }
}

TEST_P(GenerateTest, AStopTokenEndsASequence) {
  TinyModel model(GetParam());
  const Expected &e = model.expected[2];
  size_t at = 0;
  while (std::find(e.greedy.begin(), e.greedy.begin() + static_cast<long>(at),
                   e.greedy[at]) != e.greedy.begin() + static_cast<long>(at))
    ++at;
  int32_t stop = e.greedy[at];
  auto results = run(model, {{e.prompt, 8, {}, -1, false}}, {stop});
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ((*results)[0].stopToken, stop);
  EXPECT_EQ((*results)[0].tokens.size(), at);
}

TEST_P(GenerateTest, AKeptSlotContinues) {
  TinyModel model(GetParam());
  const Expected &e = model.expected[2];
  std::vector<int32_t> head(e.prompt.begin(), e.prompt.begin() + 20);
  std::vector<int32_t> tail(e.prompt.begin() + 20, e.prompt.end());
  auto first = run(model, {{head, 0, {}, -1, true}});
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_TRUE((*first)[0].tokens.empty());
  auto second = run(model, {{tail, 8, {}, (*first)[0].slot, false}});
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ((*second)[0].tokens, e.greedy);
}

TEST_P(GenerateTest, SamplingDependsOnTheSeedNotOnTheBatch) {
  TinyModel model(GetParam());
  std::vector<GenerateRequest> requests = requestsOf(model);
  for (GenerateRequest &request : requests)
    request.sampling = {2.0, 50, 0.95, 17};
  auto together = run(model, requests);
  ASSERT_TRUE(together.ok());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto alone = run(model, {requests[i]});
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ((*alone)[0].tokens, (*together)[i].tokens);
    EXPECT_NE((*alone)[0].tokens, model.expected[i].greedy);
  }
}

TEST_P(GenerateTest, ImpossibleRequestsAreRefused) {
  TinyModel model(GetParam());
  auto refusal = [&](const GenerateRequest &request) {
    auto results = run(model, {{{1}, 1, {}, -1, false}, request});
    return results.ok() ? "accepted" : results.status().message();
  };
  EXPECT_EQ(refusal({{}, 1, {}, -1, false}), "request 2 has an empty prompt");
  EXPECT_EQ(refusal({{160}, 1, {}, -1, false}),
            "request 2 has token 160, which is not in the vocabulary of 160");
  EXPECT_EQ(refusal({{1}, 256, {}, -1, false}),
            "request 2 needs 257 tokens, but the session's context is 256");
  EXPECT_EQ(refusal({{1}, -1, {}, -1, false}), "request 2 wants -1 new tokens");
  EXPECT_EQ(refusal({{1}, 1, {}, 3, false}),
            "request 2 continues slot 3, which is not open");
  EXPECT_EQ(refusal({{1}, 1, {-1}, -1, false}),
            "request 2: temperature -1.000000 should be from 0 to 100");
  EXPECT_FALSE(model.session->isOpen(0));
}

/// A scale of NaN, say: every token would be the first of the vocabulary.
TEST(Generate, LogitsThatAreNotNumbersAreAnError) {
  TinyModel model("48b");
  model.weights.norm[0] = NAN;
  for (double temperature : {0.0, 1.0}) {
    GenerateRequest request{{1, 2, 3}, 4, {temperature}, -1, false};
    auto results = generate(model.config, model.weights, *model.ops,
                            *model.session, {request}, {});
    ASSERT_FALSE(results.ok());
    EXPECT_EQ(results.status().message(),
              "request 1 has logits that are not numbers; weights or caches "
              "hold NaN or infinities");
    EXPECT_FALSE(model.session->isOpen(0));
  }
}

/// Early ends give slots to those who wait, whose tokens do not change.
TEST_P(GenerateTest, RequestsOfDifferentLengthsShareSlots) {
  TinyModel model(GetParam(), 2, 16);
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < 9; ++i) {
    const Expected &e = model.expected[i % 4];
    requests.push_back(
        {e.prompt, static_cast<int64_t>(1 + i * 5 % 8), {}, -1, false});
  }
  GenerateStats stats;
  auto results = run(model, requests, {}, &stats);
  ASSERT_TRUE(results.ok()) << results.status().message();
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t> &all = model.expected[i % 4].greedy;
    EXPECT_EQ(
        (*results)[i].tokens,
        std::vector<int32_t>(all.begin(), all.begin() + requests[i].newTokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateTest, testing::Values("48b", "k3"),
                         [](const auto &info) { return testName(info.param); });
INSTANTIATE_TEST_SUITE_P(Gpu, GenerateTest, testing::Values("48b@f32"),
                         [](const auto &info) { return testName(info.param); });
