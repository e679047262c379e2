// Checkpoints that do not fit their config: refused before anything runs, with
// file, tensor, what it is and what it should be.
#include "TinyModel.h"

#include <filesystem>
#include <fstream>

using namespace kdac;
using namespace kdac::model;

namespace {

namespace fs = std::filesystem;

/// A copy of a tiny checkpoint that goes away.
class Copy {
public:
  explicit Copy(const std::string &kind) {
    std::string name = fs::temp_directory_path() / "kdac-weights-XXXXXX";
    folder = ::mkdtemp(name.data());
    fs::copy(tinyFolder(kind), folder, fs::copy_options::recursive);
  }
  ~Copy() { fs::remove_all(folder); }

  /// Replaces bytes of a file, from `after` on, by as many others.
  void edit(const std::string &file, const std::string &after,
            const std::string &from, const std::string &to) {
    std::fstream stream(folder + "/" + file,
                        std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(stream), {});
    size_t at = bytes.find(after);
    ASSERT_NE(at, std::string::npos);
    at = bytes.find(from, at);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    stream.seekp(static_cast<long>(at));
    stream << to;
  }
  void editConfig(const std::string &from, const std::string &to) {
    std::ifstream in(folder + "/config.json");
    std::string text(std::istreambuf_iterator<char>(in), {});
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    std::ofstream(folder + "/config.json") << text;
  }
  /// Overwrites bytes of a tensor.
  void write(const std::string &file, const std::string &tensor, long offset,
             const std::string &bytes) {
    std::fstream stream(folder + "/" + file,
                        std::ios::in | std::ios::out | std::ios::binary);
    std::string all(std::istreambuf_iterator<char>(stream), {});
    auto tensors = parseSafetensors(all, file);
    ASSERT_TRUE(tensors.ok()) << tensors.status().message();
    stream.seekp(tensors->at(tensor).data - all.data() + offset);
    stream << bytes;
  }
  /// The error, with the folder's name cut out.
  std::string refusal() const {
    auto config = readConfig(folder + "/config.json");
    EXPECT_TRUE(config.ok());
    auto checkpoint = Checkpoint::open(folder);
    if (!checkpoint.ok())
      return shortened(checkpoint.status());
    auto weights = bindWeights(*config, *checkpoint);
    return weights.ok() ? "accepted" : shortened(weights.status());
  }

  std::string folder;

private:
  std::string shortened(const Status &status) const {
    std::string text = status.message();
    for (size_t at; (at = text.find(folder)) != std::string::npos;)
      text.replace(at, folder.size(), "@");
    return text;
  }
};

constexpr char one[] = "model.safetensors";

} // namespace

TEST(Weights, BothFormatsAreBound) {
  EXPECT_EQ(Copy("48b").refusal(), "accepted");
  EXPECT_EQ(Copy("k3").refusal(), "accepted");
}

TEST(Weights, UnknownTensorsAreListed) {
  TinyModel k3("k3"), small("48b");
  EXPECT_EQ(k3.weights.unknownTensors,
            std::vector<std::string>({"vision_tower.patch_embed.proj.weight"}));
  EXPECT_TRUE(small.weights.unknownTensors.empty());
}

TEST(Weights, AMissingTensorIsNamed) {
  Copy copy("48b");
  copy.edit(one, "model.layers.2.", "A_log", "B_log");
  EXPECT_EQ(copy.refusal(),
            "@: tensor model.layers.2.self_attn.A_log is missing");
}

TEST(Weights, AWrongShapeIsNamed) {
  Copy copy("48b");
  copy.edit(one, "model.layers.3.self_attn.kv_b_proj.weight", "[120, 32]",
            "[32, 120]");
  EXPECT_EQ(copy.refusal(),
            "@/model.safetensors: tensor "
            "model.layers.3.self_attn.kv_b_proj.weight has shape [32, 120], "
            "but the config wants [120, 32]");
}

TEST(Weights, AWrongDtypeIsNamed) {
  Copy copy("48b");
  copy.edit(one, "\"model.embed_tokens.weight", "\"BF16\"", "\"I16\" ");
  EXPECT_EQ(copy.refusal(),
            "@/model.safetensors: tensor model.embed_tokens.weight is I16, but "
            "should be F32, F16 or BF16");
}

TEST(Weights, AConfigOfAnotherModelIsRefused) {
  Copy copy("48b");
  copy.editConfig("\"hidden_size\": 72", "\"hidden_size\": 80");
  EXPECT_EQ(copy.refusal(),
            "@/model.safetensors: tensor model.embed_tokens.weight has shape "
            "[160, 72], but the config wants [160, 80]");
}

/// 1-based lists: read as 0-based, layer 3 would be a KDA layer.
TEST(Weights, ALayerOfTheOtherKindLacksItsTensors) {
  Copy copy("48b");
  copy.editConfig("\"full_attn_layers\": [\n   4\n  ]",
                  "\"full_attn_layers\": []");
  EXPECT_EQ(copy.refusal(), "accepted");
  copy.editConfig("   5\n", "   4\n");
  EXPECT_EQ(
      copy.refusal(),
      "@/model.safetensors: tensor model.layers.3.self_attn.q_proj.weight "
      "has shape [72, 72], but the config wants [96, 72]");
}

TEST(Weights, PaddingOfALogMustBeZero) {
  Copy copy("k3");
  // Two heads in a tensor of eight.
  copy.write("model-1.safetensors",
             "language_model.model.layers.1.self_attn.A_log", 5 * 4,
             "\1\1\1\1");
  EXPECT_EQ(copy.refusal(),
            "@/model-1.safetensors: tensor "
            "language_model.model.layers.1.self_attn.A_log has a value that is "
            "not 0 at 5, behind the 2 heads");
}

TEST(Weights, PackedExpertsAreChecked) {
  Copy copy("k3");
  copy.edit("model-1.safetensors", "experts.0.w1.weight_scale", "[64, 1]",
            "[32, 2]");
  EXPECT_EQ(copy.refusal(),
            "@/model-1.safetensors: tensor language_model.model.layers.1."
            "block_sparse_moe.experts.0.w1.weight_scale has shape [32, 2], but "
            "the config wants [64, 1]");
}

/// pitfalls.md MOD-2: tied only where the config says so.
TEST(Weights, AHeadIsMissedUnlessTied) {
  Copy copy("48b");
  copy.edit(one, "\"lm_head.weight", "lm_head.weight", "lm_tail.weight");
  EXPECT_EQ(copy.refusal(), "@: tensor lm_head.weight is missing");
  copy.editConfig("\"tie_word_embeddings\": false,\n", "");
  EXPECT_EQ(copy.refusal(), "@: tensor lm_head.weight is missing");
  copy.editConfig("{", "{\"tie_word_embeddings\": true,");
  EXPECT_EQ(copy.refusal(), "accepted");
}

TEST(Weights, TiedWeightsAreTheEmbeddingWhateverElseIsThere) {
  Copy copy("48b");
  copy.editConfig("\"tie_word_embeddings\": false",
                  "\"tie_word_embeddings\": true");
  auto config = readConfig(copy.folder + "/config.json");
  auto checkpoint = Checkpoint::open(copy.folder);
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  auto weights = bindWeights(*config, *checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->head.data, weights->embedding.data);
  EXPECT_EQ(weights->unknownTensors,
            std::vector<std::string>({"lm_head.weight"}));
}

/// pitfalls.md MOD-4 and MOD-5: shapes that say the same.
TEST(Weights, ParametersMayHaveOtherRanks) {
  Copy copy("48b");
  std::string at = "model.layers.0.self_attn.";
  copy.edit(one, at + "q_conv1d", "[96, 1, 4]", "[96, 4]   ");
  copy.edit(one, at + "A_log", "[1, 1, 3, 1]", "[3]         ");
  EXPECT_EQ(copy.refusal(), "accepted");
  copy.edit(one, at + "A_log", "[3]         ", "[2]         ");
  EXPECT_NE(copy.refusal().find("A_log"), std::string::npos);
}

/// pitfalls.md MOD-5: what is before the names is the file's choice.
TEST(Weights, ATextModelMayBeStoredAloneOrInAnother) {
  Copy copy("k3");
  std::ifstream in(copy.folder + "/config.json");
  std::string text(std::istreambuf_iterator<char>(in), {});
  size_t begin = text.find('{', text.find("\"text_config\""));
  size_t end = text.find("\"quantization_config\"");
  end = text.rfind('}', end);
  std::ofstream(copy.folder + "/config.json")
      << text.substr(begin, end + 1 - begin);
  EXPECT_EQ(copy.refusal(), "accepted");
}

/// A config of fewer layers would run, and give another model's tokens.
TEST(Weights, LayersBeyondTheConfigsAreRefused) {
  Copy copy("48b");
  copy.editConfig("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 5");
  EXPECT_EQ(copy.refusal(), "@/config.json has 5 layers, but the checkpoint "
                            "has tensor model.layers.5.block_sparse_moe."
                            "experts.0.w1.weight");
}

TEST(Weights, PackedExpertsComeInGroupsOf32) {
  Copy copy("k3");
  copy.editConfig("\"routed_expert_hidden_size\": 32",
                  "\"routed_expert_hidden_size\": 40");
  EXPECT_EQ(copy.refusal(),
            "@/model-1.safetensors: tensor language_model.model.layers.1."
            "block_sparse_moe.experts.0.w1.weight_packed has 40 inputs, but "
            "MXFP4 packs groups of 32");
}

TEST(Weights, ATruncatedShardIsNamed) {
  Copy copy("k3");
  std::string shard = copy.folder + "/model-3.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 5);
  EXPECT_NE(copy.refusal().find("the file is truncated or damaged"),
            std::string::npos);
  fs::remove(shard);
  EXPECT_NE(copy.refusal().find("No such file or directory"),
            std::string::npos);
}

TEST(Weights, RandomOnesRun) {
  TinyModel model("48b");
  auto weights = randomWeights(model.config, 5);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  model.weights = std::move(*weights);
  for (float logit : model.run(model.open(), model.expected[2].prompt))
    ASSERT_TRUE(std::isfinite(logit));
}

TEST(Weights, RandomOnesThatDoNotFitAreRefused) {
  StatusOr<ModelConfig> config = presetConfig("kimi-k3");
  ASSERT_TRUE(config.ok());
  auto weights = randomWeights(*config, 5);
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.status().message().substr(0, 47),
            "kimi-k3: random weights need 5558999935360 byte");
}
