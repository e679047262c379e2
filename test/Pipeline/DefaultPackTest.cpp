// packs/default.yaml covers every pair of options that can occur together, and
// stays small.
#include "kdac/Pipeline/PackSpec.h"
#include "kdac/Variant/Options.h"

#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

#include <algorithm>

using namespace kdac;

namespace {

using Values = std::vector<std::string>;

/// The options that a GPU kernel may combine freely (issue "First light").
const std::vector<std::pair<std::string, Values>> &optionTable() {
  static const Values dims = {"32", "64", "96", "128", "192", "256"};
  static const std::vector<std::pair<std::string, Values>> table = {
      {"recurrence",
       {"kda", "gated_delta", "delta", "gla", "simple_gla", "retention",
        "linear", "dplr"}},
      {"form", {"chunk", "step"}},
      {"key-dim", dims},
      {"value-dim", dims},
      {"dtype", {"bf16", "f16", "f32"}},
      {"state-dtype", {"f32", "bf16"}},
      {"state-layout", {"vk", "kv"}},
      {"gate", {"bounded", "softplus", "identity", "none"}},
      {"gate-dtype", {"bf16", "f16", "f32"}},
      {"beta", {"sigmoid", "2sigmoid", "identity", "none"}},
      {"l2norm", {"true", "false"}},
      {"offsets", {"i32", "i64"}},
      {"precision", {"fast", "default", "high"}},
  };
  return table;
}

/// What `variant` spells for option `name`.
std::string valueOf(const Variant &v, const std::string &name) {
  if (name == "recurrence")
    return v.recurrence;
  if (name == "form")
    return std::string(spell(v.form));
  if (name == "key-dim")
    return std::to_string(v.keyDim);
  if (name == "value-dim")
    return std::to_string(v.valueDim);
  if (name == "dtype")
    return std::string(spell(v.dtype));
  if (name == "state-dtype")
    return std::string(spell(v.stateDtype));
  if (name == "state-layout")
    return std::string(spell(v.stateLayout));
  if (name == "gate")
    return std::string(spell(*v.gate));
  if (name == "gate-dtype")
    return std::string(spell(*v.gateDtype));
  if (name == "beta")
    return std::string(spell(*v.beta));
  if (name == "l2norm")
    return *v.l2norm ? "true" : "false";
  if (name == "offsets")
    return std::string(spell(v.offsetDtype));
  return std::string(spell(v.precision));
}

using Setting = std::pair<std::string, std::string>;

/// True if some choice of the options that exclude each other completes the
/// settings to a variant that can exist.
bool possible(std::vector<Setting> settings, size_t next = 0) {
  static const Values excluding = {"recurrence", "form", "gate", "beta",
                                   "dtype"};
  if (next == excluding.size()) {
    Variant variant;
    for (auto &[name, value] : settings)
      EXPECT_FALSE(findVariantOption(name)->set(variant, value));
    // Refused by dplr-select-schedule; goes when that form exists.
    if (variant.recurrence == "dplr" && variant.form == Form::Chunk)
      return false;
    return !resolve(variant);
  }
  const std::string &name = excluding[next];
  for (auto &[set, value] : settings)
    if (set == name)
      return possible(settings, next + 1);
  for (auto &[option, values] : optionTable())
    for (const std::string &value : values)
      if (option == name) {
        settings.push_back({name, value});
        if (possible(settings, next + 1))
          return true;
        settings.pop_back();
      }
  return false;
}

std::vector<CompileJob> defaultPack() {
  std::string path = KDAC_SOURCE_DIR "/packs/default.yaml";
  auto buffer = llvm::MemoryBuffer::getFile(path);
  EXPECT_TRUE(static_cast<bool>(buffer)) << path;
  auto jobs = parsePackSpec((*buffer)->getBuffer(), path);
  EXPECT_TRUE(static_cast<bool>(jobs)) << llvm::toString(jobs.takeError());
  return std::move(*jobs);
}

TEST(DefaultPack, HasAtMost150Variants) {
  size_t count = defaultPack().size();
  EXPECT_GE(count, 40u);
  EXPECT_LE(count, 150u);
}

TEST(DefaultPack, HasTheKdaDefaults) {
  std::vector<CompileJob> jobs = defaultPack();
  for (Form form : {Form::Chunk, Form::Step}) {
    Variant kda;
    kda.form = form;
    kda.target = "sm_90a";
    ASSERT_FALSE(resolve(kda));
    EXPECT_TRUE(std::any_of(jobs.begin(), jobs.end(), [&](auto &job) {
      return variantName(job.variant) == variantName(kda);
    })) << variantName(kda);
  }
}

TEST(DefaultPack, CoversEveryPairOfOptions) {
  std::vector<CompileJob> jobs = defaultPack();
  auto covered = [&](const Setting &a, const Setting &b) {
    return std::any_of(jobs.begin(), jobs.end(), [&](auto &job) {
      return valueOf(job.variant, a.first) == a.second &&
             valueOf(job.variant, b.first) == b.second;
    });
  };
  size_t pairs = 0;
  for (size_t i = 0; i < optionTable().size(); ++i)
    for (size_t j = i + 1; j < optionTable().size(); ++j)
      for (const std::string &x : optionTable()[i].second)
        for (const std::string &y : optionTable()[j].second) {
          Setting a{optionTable()[i].first, x}, b{optionTable()[j].first, y};
          if (!possible({a, b}))
            continue;
          ++pairs;
          EXPECT_TRUE(covered(a, b))
              << a.first << "=" << x << " with " << b.first << "=" << y;
        }
  EXPECT_GT(pairs, 700u);
}

} // namespace
