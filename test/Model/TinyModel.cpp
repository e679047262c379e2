#include "TinyModel.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace kdac::model {

std::string tinyFolder(const std::string &kind) {
  return std::string(KDAC_TINY_MODELS) + "/" + kind;
}

static std::vector<Expected> readExpected(const std::string &path) {
  std::ifstream file(path);
  nlohmann::json all = nlohmann::json::parse(file, nullptr, false);
  std::vector<Expected> expected;
  for (const auto &one : all)
    expected.push_back({one["prompt"], one["greedy"], one["logits"]});
  return expected;
}

TinyModel::TinyModel(const std::string &kind, int64_t slots,
                     int64_t batchTokens) {
  load(tinyFolder(kind), slots, batchTokens);
  if (testing::Test::HasFatalFailure())
    std::exit(1);
}

void TinyModel::load(const std::string &folder, int64_t slots,
                     int64_t batchTokens) {
  auto read = readConfig(folder + "/config.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  config = *read;
  auto opened = Checkpoint::open(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  checkpoint = std::make_unique<Checkpoint>(std::move(*opened));
  auto bound = bindWeights(config, *checkpoint);
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  weights = std::move(*bound);
  auto pack = PackReader::open(KDAC_RUN_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  auto made = makeHostOps(config, *pack, {batchTokens, slots, 2});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ops = std::move(*made);
  auto created = Session::create(config, {slots, 256, 0, batchTokens});
  ASSERT_TRUE(created.ok()) << created.status().message();
  session = std::make_unique<Session>(std::move(*created));
  expected = readExpected(folder + "/expected.json");
  ASSERT_EQ(expected.size(), 4u);
}

int32_t TinyModel::open() {
  auto slot = session->open();
  EXPECT_TRUE(slot.ok()) << slot.status().message();
  return slot.ok() ? *slot : -1;
}

std::vector<float> TinyModel::run(int32_t slot, const int32_t *tokens,
                                  int64_t count) {
  Batch batch;
  batch.add(slot, tokens, count);
  auto logits = forward(config, weights, *ops, *session, batch);
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  if (!logits.ok())
    return {};
  return std::vector<float>(logits->row(0), logits->row(0) + logits->width);
}

std::vector<float> TinyModel::run(int32_t slot,
                                  const std::vector<int32_t> &tokens) {
  return run(slot, tokens.data(), static_cast<int64_t>(tokens.size()));
}

} // namespace kdac::model
