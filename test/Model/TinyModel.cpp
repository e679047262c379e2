#include "TinyModel.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>

namespace kdac::model {

/// Files that this build made, or those that a script put beside the tests.
static std::string fileOf(const char *variable, const char *built) {
  const char *given = std::getenv(variable);
  return given ? given : built;
}

std::string tinyFolder(const std::string &kind) {
  return fileOf("KDAC_TEST_MODELS", KDAC_TINY_MODELS) + "/" +
         kind.substr(0, kind.find('@'));
}

static std::vector<Expected> readExpected(const std::string &path) {
  std::ifstream file(path);
  nlohmann::json all = nlohmann::json::parse(file, nullptr, false);
  std::vector<Expected> expected;
  for (const auto &one : all)
    expected.push_back({one["prompt"], one["greedy"], one["logits"],
                        one.value("state", std::vector<std::vector<double>>()),
                        one.value("conv", std::vector<std::vector<double>>()),
                        one.value("other_eps", std::vector<double>())});
  return expected;
}

TinyModel::TinyModel(const std::string &kind, int64_t slots,
                     int64_t batchTokens) {
  load(kind, slots, batchTokens);
  if (testing::Test::HasFatalFailure())
    std::exit(1);
}

void TinyModel::load(const std::string &kind, int64_t slots,
                     int64_t batchTokens) {
  std::string folder = tinyFolder(kind);
  auto read = readConfig(folder + "/config.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  config = *read;
  auto opened = Checkpoint::open(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  checkpoint = std::make_unique<Checkpoint>(std::move(*opened));
  auto bound = bindWeights(config, *checkpoint);
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  weights = std::move(*bound);
  size_t at = kind.find('@');
  if (at != std::string::npos && kind.substr(at + 1) == "bf16")
    element = Element::BF16;
  SessionLimits limits = {slots, 256, 0, batchTokens, element};
  if (at == std::string::npos)
    makeHost(limits);
  else
    makeGpu(limits);
  expected = readExpected(folder + "/expected.json");
  ASSERT_EQ(expected.size(), 4u);
}

void TinyModel::makeHost(const SessionLimits &limits) {
  auto pack = PackReader::open(fileOf("KDAC_TEST_PACK", KDAC_RUN_PACK));
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  auto made = makeHostOps(config, *pack, {limits.batchTokens, limits.slots, 2});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ops = std::move(*made);
  auto created = Session::create(config, limits);
  ASSERT_TRUE(created.ok()) << created.status().message();
  session = std::make_unique<Session>(std::move(*created));
}

void TinyModel::makeGpu(const SessionLimits &limits) {
  std::string driver = fileOf("KDAC_TEST_DRIVER", KDAC_EMULATOR);
  auto gpu = openGpu(0, driver.c_str());
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  auto pack = PackReader::open(fileOf("KDAC_TEST_GPU_PACK", KDAC_RUN_GPU_PACK));
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  auto placed = gpuWeights(*gpu, weights, element, false);
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  weights = std::move(*placed);
  auto created = Session::create(config, limits, gpuMemory(*gpu));
  ASSERT_TRUE(created.ok()) << created.status().message();
  session = std::make_unique<Session>(std::move(*created));
  // Keys of long pieces come in more than one block.
  constexpr int64_t keyBlock = 64;
  bool isReal = std::getenv("KDAC_TEST_DRIVER") != nullptr;
  auto made = makeGpuOps(*gpu, config, *pack,
                         {limits.batchTokens, limits.slots,
                          limits.contextTokens, element, keyBlock, isReal});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ops = std::move(*made);
}

/// f32 throughout: each of some 60 operations in a row adds errors of a few
/// 2^-24 relative to its result; softmax, routing weights and norms magnify
/// them by small factors. The largest seen is 9.4e-6; the traps of
/// python/model_reference.py change logits by 3e-3 at least. bf16 rounds what
/// operations pass on to 2^-9 of it: the square root of 60 times that, and the
/// same factors, as long as no row chooses another expert for it.
double TinyModel::tolerance() const {
  return element == Element::F32 ? 3e-5 : 5e-2;
}

std::vector<float> TinyModel::row(Rows logits, int64_t i) const {
  std::vector<float> values(static_cast<size_t>(logits.width));
  Status read =
      session->memory().read(values.data(), logits.row(i), logits.width * 4);
  EXPECT_TRUE(read.ok()) << read.message();
  return values;
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
  return row(*logits, 0);
}

std::vector<float> TinyModel::run(int32_t slot,
                                  const std::vector<int32_t> &tokens) {
  return run(slot, tokens.data(), static_cast<int64_t>(tokens.size()));
}

} // namespace kdac::model
