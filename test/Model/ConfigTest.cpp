// Model configs: what is read, and how nonsense is refused.
#include "kdac/Model/Config.h"
#include "kdac/Model/Plan.h"

#include "gtest/gtest.h"

#include <iterator>
#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

/// A small valid config in which `from` is replaced by `to`.
std::string edited(const std::string &from = "", const std::string &to = "") {
  std::string text = R"({"vocab_size": 64, "hidden_size": 32,
    "num_hidden_layers": 5, "num_attention_heads": 2,
    "intermediate_size": 48, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "num_experts": 8,
    "num_experts_per_token": 2, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "moe_layer_freq": 2, "rms_norm_eps": 1e-5,
    "eos_token_id": [3, 4],
    "linear_attn_config": {"num_heads": 2, "head_dim": 32,
      "kda_layers": [1, 2, 3], "full_attn_layers": [4]}})";
  if (size_t at = text.find(from); !from.empty() && at != std::string::npos)
    text.replace(at, from.size(), to);
  return text;
}

std::string refusal(const std::string &text) {
  StatusOr<ModelConfig> config = configFromJson(text, "c.json");
  return config.ok() ? "accepted" : config.status().message();
}

} // namespace

TEST(Config, ListsAreOneBasedAndALayerInNeitherIsMla) {
  StatusOr<ModelConfig> config = configFromJson(edited(), "c.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  std::vector<Mixer> expected = {Mixer::Kda, Mixer::Kda, Mixer::Kda, Mixer::Mla,
                                 Mixer::Mla};
  EXPECT_EQ(config->mixers, expected);
  std::vector<bool> moe;
  for (int64_t i = 0; i < config->layers(); ++i)
    moe.push_back(config->isMoe(i));
  EXPECT_EQ(moe, std::vector<bool>({false, false, true, false, true}));
  EXPECT_EQ(config->stopTokens, std::vector<int64_t>({3, 4}));
  EXPECT_FALSE(config->gateLowerBound.has_value());
}

TEST(Config, UnknownKeysAreReported) {
  StatusOr<ModelConfig> config = configFromJson(
      edited("\"vocab_size\"", "\"frob\": 1, \"vocab_size\""), "c.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->unknownKeys, std::vector<std::string>({"frob"}));
  EXPECT_TRUE(configFromJson(edited(), "c.json")->unknownKeys.empty());
}

TEST(Config, PresetsHaveThePublishedShapes) {
  StatusOr<ModelConfig> small = presetConfig("kimi-linear-48b");
  StatusOr<ModelConfig> large = presetConfig("kimi-k3");
  ASSERT_TRUE(small.ok()) << small.status().message();
  ASSERT_TRUE(large.ok()) << large.status().message();
  EXPECT_EQ(small->count(Mixer::Kda), 20);
  EXPECT_EQ(small->count(Mixer::Mla), 7);
  EXPECT_EQ(small->mixers[26], Mixer::Mla);
  EXPECT_EQ(small->prefix, "");
  EXPECT_EQ(large->count(Mixer::Kda), 69);
  EXPECT_EQ(large->count(Mixer::Mla), 24);
  EXPECT_EQ(large->gateLowerBound, -5.0);
  EXPECT_TRUE(large->isLatentMoe() && large->latentNorm);
  EXPECT_EQ(large->prefix, "language_model.");
  EXPECT_FALSE(presetConfig("kimi-k4").ok());
}

TEST(Config, TheGateFollowsFromThePresenceOfItsBound) {
  StatusOr<ModelConfig> config = configFromJson(
      edited("\"head_dim\": 32", "\"head_dim\": 32, \"gate_lower_bound\": -5"),
      "c.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->gateLowerBound, -5.0);
}

/// pitfalls.md MOD-6: what the transformers library writes, beside the older
/// spelling or alone.
TEST(Config, BothSpellingsOfLayersAreRead) {
  const std::string types =
      "\"layer_types\": [\"linear_attention\", \"linear_attention\", "
      "\"linear_attention\", \"full_attention\", \"full_attention\"], ";
  const std::string sizes = "\"linear_num_heads\": 2, \"linear_head_dim\": 32, "
                            "\"linear_conv_kernel_dim\": 4, ";
  const std::string mlps =
      "\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", "
      "\"sparse\", \"sparse\"], \"attention_bias\": false, "
      "\"qk_head_dim\": 12, \"rope_parameters\": {}, ";
  std::string both = edited("\"moe_layer_freq\": 2,", types + sizes + mlps);
  StatusOr<ModelConfig> old =
      configFromJson(edited("\"moe_layer_freq\": 2,", ""), "c.json");
  std::string alone =
      both.substr(0, both.rfind(',', both.find("\"linear_attn_config\""))) +
      "}";
  alone.replace(alone.find("\"first_k_dense_replace\": 1,"), 27, "");
  for (const std::string &text : {both, alone}) {
    StatusOr<ModelConfig> config = configFromJson(text, "c.json");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->mixers, old->mixers);
    EXPECT_EQ(config->firstDense, 1);
    EXPECT_EQ(config->kdaHeads, 2);
    EXPECT_EQ(config->kdaDim, 32);
    EXPECT_EQ(config->convWidth, 4);
    EXPECT_TRUE(config->unknownKeys.empty());
  }
  auto broken = [&](const std::string &from, const std::string &to) {
    std::string text = both;
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
  };
  EXPECT_EQ(broken("\"full_attention\"", "\"linear_attention\""),
            "c.json: key 'layer_types' has 'linear_attention' as layer 4, but "
            "kda_layers says otherwise");
  EXPECT_EQ(broken("\"full_attention\", ", ""),
            "c.json: key 'layer_types' has 4 layers, but num_hidden_layers is "
            "5");
  EXPECT_EQ(broken("\"full_attention\"", "\"sliding_attention\""),
            "c.json: key 'layer_types' has 'sliding_attention', but this "
            "runtime knows linear_attention and full_attention");
  EXPECT_EQ(broken("\"linear_num_heads\": 2", "\"linear_num_heads\": 4"),
            "c.json: key 'linear_num_heads' is 4, but should be an integer "
            "from 2 to 2");
  EXPECT_EQ(broken("[\"dense\", ", "[\"dense\", \"dense\", "),
            "c.json: key 'mlp_layer_types' should have 5 layers, dense or "
            "sparse as first_k_dense_replace and moe_layer_freq say");
  EXPECT_EQ(broken("\"attention_bias\": false", "\"attention_bias\": true"),
            "c.json: key 'attention_bias' is true, but this runtime has no "
            "biases");
}

/// pitfalls.md MOD-7: heads of KDA layers are the nested ones.
TEST(Config, KdaHeadsAreNotTheOthers) {
  StatusOr<ModelConfig> config =
      configFromJson(edited("\"num_heads\": 2", "\"num_heads\": 3"), "c.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->kdaHeads, 3);
  EXPECT_EQ(config->heads, 2);
}

/// Of a model inside another one, either says where texts end.
TEST(Config, StopTokensMayBeTheWrappers) {
  auto stops = [](const std::string &inner) {
    StatusOr<ModelConfig> config = configFromJson(
        "{\"eos_token_id\": 7, \"text_config\": " + inner + "}", "c.json");
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config->stopTokens : std::vector<int64_t>();
  };
  EXPECT_EQ(stops(edited()), std::vector<int64_t>({3, 4}));
  EXPECT_EQ(stops(edited("\"eos_token_id\": [3, 4],", "")),
            std::vector<int64_t>({7}));
}

TEST(Config, AByteOrderMarkIsNoMatter) {
  EXPECT_TRUE(configFromJson("\xef\xbb\xbf" + edited(), "c.json").ok());
}

TEST(Config, NonsenseIsRefusedInASentence) {
  const std::vector<std::vector<std::string>> cases = {
      {"\"hidden_size\": 32", "\"hidden_size\": -3",
       "c.json: key 'hidden_size' is -3, but should be an integer from 1 to "
       "1048576"},
      {"\"hidden_size\": 32", "\"hidden_size\": 18446744073709551615",
       "c.json: key 'hidden_size' is 18446744073709551615, but should be an "
       "integer from 1 to 1048576"},
      {"\"hidden_size\": 32,", "", "c.json: key 'hidden_size' is missing"},
      {"\"hidden_size\": 32", "\"hidden_size\": \"32\"",
       "c.json: key 'hidden_size' is \"32\", but should be an integer from 1 "
       "to 1048576"},
      {"1e-5", "1e300",
       "c.json: key 'rms_norm_eps' is 1e+300, but should be a number from "
       "1e-12 to 1.0"},
      {"[1, 2, 3]", "[0, 1]",
       "c.json: linear_attn_config: key 'kda_layers' has 0, but should hold "
       "integers from 1 to 5"},
      {"[1, 2, 3]", "[1, 1]",
       "c.json: linear_attn_config: key 'kda_layers' has layer 1 twice"},
      {"[1, 2, 3]", "[4]",
       "c.json: linear_attn_config: key 'kda_layers' has layer 4, which "
       "full_attn_layers has too"},
      {"\"num_experts_per_token\": 2", "\"num_experts_per_token\": 9",
       "c.json: key 'num_experts_per_token' is 9, but should be an integer "
       "from 1 to 8"},
      {"\"vocab_size\"", "\"mla_use_nope\": false, \"vocab_size\"",
       "c.json: key 'mla_use_nope' is false, but this runtime has no rotary "
       "embedding, which such a model needs"},
      {"\"vocab_size\"", "\"hidden_act\": \"gelu\", \"vocab_size\"",
       "c.json: key 'hidden_act' is 'gelu', but this runtime knows silu and "
       "situ"},
      {"\"vocab_size\"", "\"num_expert_group\": 3, \"vocab_size\"",
       "c.json: key 'num_expert_group' is 3, which does not divide 8 experts"},
      {"\"vocab_size\"",
       "\"quantization_config\": {\"format\": \"gptq\"}, \"vocab_size\"",
       "c.json: quantization_config: key 'format' is 'gptq', but this runtime "
       "knows mxfp4-pack-quantized"},
      {"\"hidden_size\": 32", "\"hidden_size\": 32.0",
       "c.json: key 'hidden_size' is 32.0, but should be an integer from 1 to "
       "1048576"},
      {"\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": null",
       "c.json: key 'rms_norm_eps' is missing"},
      {"\"kda_layers\": [1, 2, 3], ", "",
       "c.json: linear_attn_config: key 'kda_layers' is missing"},
      {"\"vocab_size\"",
       "\"hidden_act\": \"situ\", \"activation_situ_beta\": 4, \"vocab_size\"",
       "c.json: key 'activation_situ_linear_beta' is missing"},
      {"\"hidden_size\": 32", "\"hidden_size\": 32, \"hidden_size\": 48",
       "c.json has the key 'hidden_size' twice"},
      {"\"linear_attn_config\"", "\"linear\"",
       "c.json: key 'linear_attn_config' is missing"}};
  for (const auto &row : cases)
    EXPECT_EQ(refusal(edited(row[0], row[1])), row[2]);
  EXPECT_EQ(refusal("{"), "c.json is not JSON");
  EXPECT_EQ(refusal("[]"), "c.json should be an object, but is []");
  EXPECT_EQ(refusal(std::string(100000, '[')), "c.json is nested too deeply");
}

/// Whatever is accepted has sizes whose products do not wrap.
TEST(Config, NoTextCrashesTheReader) {
  std::mt19937 random(9);
  const std::string values[] = {"0",      "-1", "1e308", "4.0",  "null",
                                "[]",     "{}", "\"x\"", "true", "1048576",
                                "[1, 5]", "5",  "16384"};
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = edited();
    for (int edit = static_cast<int>(random() % 3); edit >= 0; --edit) {
      if (round % 2) { // a value
        size_t at = text.find(": ", random() % text.size());
        if (at == std::string::npos)
          continue;
        size_t end = text.find_first_of(",}", at);
        text.replace(at + 2, end - at - 2,
                     values[random() % std::size(values)]);
      } else { // a byte
        text[random() % text.size()] = static_cast<char>(random());
      }
    }
    StatusOr<ModelConfig> config = configFromJson(text, "c.json");
    if (!config.ok()) {
      EXPECT_FALSE(config.status().message().empty());
      continue;
    }
    ++accepted;
    EXPECT_GT(config->layers(), 0);
    EXPECT_TRUE(planCaches(*config, 1 << 20, 1).ok()) << text;
  }
  EXPECT_GT(accepted, 0);
}

TEST(Config, AMissingFileIsNamed) {
  StatusOr<ModelConfig> config = readConfig("/no/such/config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message(),
            "/no/such/config.json: No such file or directory");
}
