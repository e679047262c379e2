#include "kdac/Model/Config.h"

#include "FileBytes.h"
#include "JsonFields.h"

#include <algorithm>
#include <tuple>

namespace kdac::model {

using nlohmann::json;

namespace {

// Limits that keep every product of sizes far below 2^63.
constexpr int64_t maxWidth = 1 << 20, maxHeads = 1 << 14, maxLayers = 4096;
constexpr int64_t maxVocab = 1 << 24, maxExperts = 1 << 16;
constexpr int64_t maxContext = int64_t(1) << 31;

/// The rest of a config in the middle of being read.
struct Reader {
  ModelConfig &config;
  Status &status;

  void readShape(JsonFields &fields);
  void readMixers(JsonFields &fields, JsonFields &linear, int64_t layers);
  void readLists(JsonFields &linear, int64_t layers);
  void readTypes(JsonFields &fields, bool hasLists);
  void readKda(JsonFields &linear);
  void readLinear(JsonFields &fields, const json *nested, int64_t layers);
  void readMla(JsonFields &fields);
  void readMlp(JsonFields &fields);
  void readMoe(JsonFields &fields);
  void readMlpTypes(JsonFields &fields);
  void readTokens(JsonFields &fields);
  void checkQuantisation(JsonFields &fields);
};

/// Keys that other software needs, or that repeat what others say.
void skipInformational(JsonFields &fields) {
  fields.skip({"architectures",
               "model_type",
               "auto_map",
               "head_dim",
               "qk_head_dim",
               "initializer_range",
               "rope_theta",
               "rope_scaling",
               "use_cache",
               "torch_dtype",
               "dtype",
               "transformers_version",
               "topk_method",
               "use_grouped_topk",
               "pad_token_id",
               "bos_token_id",
               "attention_dropout",
               "ep_size",
               "aux_loss_alpha",
               "seq_aux",
               "pretraining_tp",
               "_name_or_path",
               "rope_parameters",
               "output_router_logits",
               "router_aux_loss_coef",
               "num_hidden_layers"});
}

void Reader::readShape(JsonFields &fields) {
  config.vocab = fields.integer("vocab_size", 1, maxVocab);
  config.hidden = fields.integer("hidden_size", 1, maxWidth);
  config.normEps = fields.number("rms_norm_eps", 1e-12, 1);
  config.residualBlock = fields.integer("attn_res_block_size", 0, maxLayers, 0);
  std::string act = fields.text("hidden_act", "silu");
  if (act == "situ") {
    config.activation = Activation::Situ;
    config.situBeta = fields.number("activation_situ_beta", 1e-6, 1e6);
    config.situLinearBeta =
        fields.number("activation_situ_linear_beta", 1e-6, 1e6);
  } else if (act != "silu") {
    fields.reject("hidden_act",
                  "is '" + act + "', but this runtime knows silu and situ");
  }
  fields.skip({"activation_situ_beta", "activation_situ_linear_beta"});
  if (fields.integer("num_nextn_predict_layers", 0, maxLayers, 0) != 0)
    fields.reject("num_nextn_predict_layers",
                  "is not 0, but this runtime has no prediction layers");
}

/// Both lists are 1-based; a layer in neither is MLA (hybrid-model.md 1.1).
void Reader::readLists(JsonFields &linear, int64_t layers) {
  std::vector<int64_t> kda = linear.integers("kda_layers", 1, layers);
  std::vector<int64_t> full = linear.integers("full_attn_layers", 1, layers);
  for (int64_t layer : kda) {
    if (std::find(full.begin(), full.end(), layer) != full.end())
      linear.reject("kda_layers", "has layer " + std::to_string(layer) +
                                      ", which full_attn_layers has too");
    Mixer &mixer = config.mixers[static_cast<size_t>(layer - 1)];
    if (mixer == Mixer::Kda)
      linear.reject("kda_layers",
                    "has layer " + std::to_string(layer) + " twice");
    mixer = Mixer::Kda;
  }
}

/// The spelling of the transformers library, one name per layer.
void Reader::readTypes(JsonFields &fields, bool hasLists) {
  std::vector<std::string> types = fields.texts("layer_types");
  if (types.size() != config.mixers.size())
    return fields.reject("layer_types",
                         "has " + std::to_string(types.size()) +
                             " layers, but num_hidden_layers is " +
                             std::to_string(config.mixers.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    bool isKda = types[i] == "linear_attention";
    if (!isKda && types[i] != "full_attention")
      fields.reject("layer_types", "has '" + types[i] +
                                       "', but this runtime knows "
                                       "linear_attention and full_attention");
    if (hasLists && isKda != (config.mixers[i] == Mixer::Kda))
      fields.reject("layer_types", "has '" + types[i] + "' as layer " +
                                       std::to_string(i + 1) +
                                       ", but kda_layers says otherwise");
    config.mixers[i] = isKda ? Mixer::Kda : Mixer::Mla;
  }
}

void Reader::readMixers(JsonFields &fields, JsonFields &linear,
                        int64_t layers) {
  config.mixers.assign(static_cast<size_t>(layers), Mixer::Mla);
  bool hasLists = linear.find("kda_layers");
  bool hasTypes = fields.find("layer_types");
  linear.skip({"full_attn_layers"});
  if (!hasLists && !hasTypes)
    linear.reject("kda_layers", "is missing");
  if (hasLists)
    readLists(linear, layers);
  if (hasTypes)
    readTypes(fields, hasLists);
}

void Reader::readKda(JsonFields &linear) {
  config.kdaHeads = linear.integer("num_heads", 1, maxHeads);
  config.kdaDim = linear.integer("head_dim", 1, 256);
  config.convWidth = linear.integer("short_conv_kernel_size", 2, 4, 4);
  config.fullRankGate = linear.boolean("use_full_rank_gate", false);
  if (linear.find("gate_lower_bound"))
    config.gateLowerBound = linear.number("gate_lower_bound", -1e4, -1e-6);
}

/// The transformers library repeats what linear_attn_config says, or has it
/// alone.
void Reader::readLinear(JsonFields &fields, const json *nested,
                        int64_t layers) {
  static const json none = json::object();
  JsonFields linear(nested ? *nested : none,
                    config.name + (nested ? ": linear_attn_config" : ""),
                    status);
  if (!nested && !fields.find("linear_num_heads"))
    return fields.reject("linear_attn_config", "is missing");
  readMixers(fields, linear, layers);
  if (nested)
    readKda(linear);
  for (auto [key, value, max] :
       {std::tuple("linear_num_heads", &config.kdaHeads, maxHeads),
        {"linear_head_dim", &config.kdaDim, 256},
        {"linear_conv_kernel_dim", &config.convWidth, 4}})
    *value = nested ? fields.integer(key, *value, *value, *value)
                    : fields.integer(key, 1, max);
  for (const std::string &key : linear.unknown())
    config.unknownKeys.push_back("linear_attn_config." + key);
}

void Reader::readMla(JsonFields &fields) {
  config.heads = fields.integer("num_attention_heads", 1, maxHeads);
  int64_t keyHeads =
      fields.integer("num_key_value_heads", 1, maxHeads, config.heads);
  if (keyHeads != config.heads)
    fields.reject("num_key_value_heads",
                  "is " + std::to_string(keyHeads) +
                      ", but should equal num_attention_heads, " +
                      std::to_string(config.heads));
  config.queryRank = fields.integer("q_lora_rank", 0, maxWidth, 0);
  config.latentRank = fields.integer("kv_lora_rank", 1, maxWidth);
  config.nopeDim = fields.integer("qk_nope_head_dim", 1, maxWidth);
  config.ropeDim = fields.integer("qk_rope_head_dim", 0, maxWidth);
  config.valueDim = fields.integer("v_head_dim", 1, maxWidth);
  config.attentionGate = fields.boolean("mla_use_output_gate", false);
  if (fields.boolean("attention_bias", false))
    fields.reject("attention_bias", "is true, but this runtime has no biases");
  if (!fields.boolean("mla_use_nope", true))
    fields.reject("mla_use_nope", "is false, but this runtime has no rotary "
                                  "embedding, which such a model needs");
}

void Reader::readMlp(JsonFields &fields) {
  config.denseWidth = fields.integer("intermediate_size", 1, maxWidth);
  config.experts = fields.integer("num_experts", 0, maxExperts, 0);
  config.expertInput = config.hidden;
  if (config.experts > 0)
    readMoe(fields);
  else
    fields.skip({"mlp_layer_types", "num_experts_per_token",
                 "num_shared_experts", "moe_intermediate_size",
                 "first_k_dense_replace", "moe_layer_freq", "moe_renormalize",
                 "routed_scaling_factor", "moe_router_activation_func",
                 "num_expert_group", "topk_group", "routed_expert_hidden_size",
                 "latent_moe_use_norm"});
}

void Reader::readMoe(JsonFields &fields) {
  config.topK = fields.integer("num_experts_per_token", 1, config.experts);
  config.sharedExperts = fields.integer("num_shared_experts", 0, 1024, 0);
  config.expertWidth = fields.integer("moe_intermediate_size", 1, maxWidth);
  config.firstDense = fields.integer("first_k_dense_replace", 0, maxLayers, 0);
  config.moeEvery = fields.integer("moe_layer_freq", 1, maxLayers, 1);
  if (fields.find("mlp_layer_types"))
    readMlpTypes(fields);
  config.renormalise = fields.boolean("moe_renormalize", true);
  config.routedScale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1.0);
  config.expertInput =
      fields.integer("routed_expert_hidden_size", 1, maxWidth, config.hidden);
  bool wantsNorm = fields.boolean("latent_moe_use_norm", false);
  config.latentNorm = wantsNorm && config.isLatentMoe();
  std::string router = fields.text("moe_router_activation_func", "sigmoid");
  if (router != "sigmoid")
    fields.reject("moe_router_activation_func",
                  "is '" + router + "', but this runtime knows sigmoid");
  config.groups = fields.integer("num_expert_group", 1, config.experts, 1);
  config.topGroups = fields.integer("topk_group", 1, config.groups, 1);
  int64_t perGroup = config.experts / config.groups;
  if (config.experts % config.groups != 0)
    fields.reject("num_expert_group", "is " + std::to_string(config.groups) +
                                          ", which does not divide " +
                                          std::to_string(config.experts) +
                                          " experts");
  else if (config.topK > perGroup * config.topGroups)
    fields.reject("num_experts_per_token",
                  "is " + std::to_string(config.topK) + ", but " +
                      std::to_string(config.topGroups) + " groups have " +
                      std::to_string(perGroup * config.topGroups) + " experts");
}

/// What first_k_dense_replace says, one name per layer; or it alone.
void Reader::readMlpTypes(JsonFields &fields) {
  std::vector<std::string> types = fields.texts("mlp_layer_types");
  if (!fields.find("first_k_dense_replace"))
    config.firstDense =
        std::find(types.begin(), types.end(), "sparse") - types.begin();
  bool agrees = types.size() == config.mixers.size();
  for (size_t i = 0; agrees && i < types.size(); ++i)
    agrees = types[i] ==
             (config.isMoe(static_cast<int64_t>(i)) ? "sparse" : "dense");
  if (!agrees)
    fields.reject("mlp_layer_types",
                  "should have " + std::to_string(config.layers()) +
                      " layers, dense or sparse as first_k_dense_replace and "
                      "moe_layer_freq say");
}

void Reader::readTokens(JsonFields &fields) {
  config.tiedEmbeddings = fields.boolean("tie_word_embeddings", false);
  config.stopTokens = fields.integers("eos_token_id", 0, maxVocab);
  int64_t length = fields.integer("model_max_length", 0, maxContext, 0);
  config.maxTokens =
      fields.integer("max_position_embeddings", 0, maxContext, length);
}

void Reader::checkQuantisation(JsonFields &fields) {
  const json *found = fields.find("quantization_config");
  if (!found)
    return;
  JsonFields quantisation(*found, config.name + ": quantization_config",
                          status);
  std::string format = quantisation.text("format", "");
  if (format != "mxfp4-pack-quantized")
    quantisation.reject("format",
                        "is '" + format +
                            "', but this runtime knows mxfp4-pack-quantized");
}

ModelConfig readText(JsonFields &fields, const std::string &name,
                     Status &status) {
  ModelConfig config;
  config.name = name;
  Reader reader{config, status};
  int64_t layers = fields.integer("num_hidden_layers", 1, maxLayers);
  skipInformational(fields);
  reader.readShape(fields);
  reader.readLinear(fields, fields.find("linear_attn_config"), layers);
  reader.readMla(fields);
  reader.readMlp(fields);
  reader.readTokens(fields);
  reader.checkQuantisation(fields);
  return config;
}

constexpr char kimiLinear48b[] = R"({
  "vocab_size": 163840, "hidden_size": 2304, "num_hidden_layers": 27,
  "num_attention_heads": 32, "intermediate_size": 9216, "rms_norm_eps": 1e-5,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8,
  "num_shared_experts": 1, "moe_intermediate_size": 1024,
  "first_k_dense_replace": 1, "routed_scaling_factor": 2.446,
  "eos_token_id": 163586, "model_max_length": 1048576,
  "linear_attn_config": {"num_heads": 32, "head_dim": 128,
    "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
    "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22,
                   23, 25, 26]}})";

constexpr char kimiK3[] = R"({"text_config": {
  "vocab_size": 163840, "hidden_size": 7168, "num_hidden_layers": 93,
  "num_attention_heads": 96, "intermediate_size": 33792, "rms_norm_eps": 1e-5,
  "hidden_act": "situ", "activation_situ_beta": 4.0,
  "activation_situ_linear_beta": 25.0, "q_lora_rank": 1536,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "mla_use_output_gate": true, "num_experts": 896,
  "num_experts_per_token": 16, "num_shared_experts": 2,
  "moe_intermediate_size": 3072, "routed_expert_hidden_size": 3584,
  "latent_moe_use_norm": true, "first_k_dense_replace": 1,
  "attn_res_block_size": 12, "eos_token_id": 163586,
  "max_position_embeddings": 1048576,
  "linear_attn_config": {"num_heads": 96, "head_dim": 128,
    "use_full_rank_gate": true, "gate_lower_bound": -5.0,
    "full_attn_layers": [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56,
                         60, 64, 68, 72, 76, 80, 84, 88, 92, 93],
    "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22,
      23, 25, 26, 27, 29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42, 43, 45, 46,
      47, 49, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63, 65, 66, 67, 69, 70,
      71, 73, 74, 75, 77, 78, 79, 81, 82, 83, 85, 86, 87, 89, 90, 91]}}})";

} // namespace

int64_t ModelConfig::residualEntries() const {
  return residualBlock == 0 ? 0
                            : (layers() + residualBlock - 1) / residualBlock;
}

int64_t ModelConfig::count(Mixer mixer) const {
  return std::count(mixers.begin(), mixers.end(), mixer);
}

StatusOr<ModelConfig> configFromJson(std::string_view text,
                                     const std::string &name) {
  StatusOr<json> root = parseJson(text, name);
  if (!root.ok())
    return root.status();
  Status status;
  JsonFields outer(*root, name, status);
  if (!status.ok())
    return status;
  // K3's checkpoint wraps the text model in a multimodal one.
  const json *wrapped = outer.find("text_config");
  JsonFields inner(wrapped ? *wrapped : *root,
                   wrapped ? name + ": text_config" : name, status);
  ModelConfig config = readText(inner, name, status);
  if (wrapped) {
    config.prefix = "language_model.";
    Reader{config, status}.checkQuantisation(outer);
    if (config.stopTokens.empty())
      config.stopTokens = outer.integers("eos_token_id", 0, maxVocab);
  }
  if (!status.ok())
    return status;
  for (const std::string &key : inner.unknown())
    config.unknownKeys.push_back(key);
  return config;
}

StatusOr<ModelConfig> readConfig(const std::string &path) {
  constexpr int64_t largest = 16 << 20;
  StatusOr<std::string> text = readWholeFile(path, largest);
  if (!text.ok())
    return text.status();
  return configFromJson(*text, path);
}

StatusOr<ModelConfig> presetConfig(std::string_view name) {
  if (name == "kimi-linear-48b")
    return configFromJson(kimiLinear48b, std::string(name));
  if (name == "kimi-k3")
    return configFromJson(kimiK3, std::string(name));
  return Status(ErrorCode::NotFound, "there is no model called '" +
                                         std::string(name) +
                                         "'; use kimi-linear-48b, kimi-k3 or "
                                         "the path of a config.json");
}

} // namespace kdac::model
