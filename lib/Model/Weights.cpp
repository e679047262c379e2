#include "kdac/Model/Weights.h"

#include "Binder.h"
#include "kdac/Model/Memory.h"

#include <charconv>

namespace kdac::model {

namespace {

/// Names and shapes of hybrid-model.md 1.2 and 2.3.
struct Layout {
  const ModelConfig &c;
  Binder &bind;
  std::string prefix; ///< of every name

  KdaWeights kda(const std::string &at);
  MlaWeights mla(const std::string &at);
  MlpWeights mlp(const std::string &at, int64_t width);
  MoeWeights moe(const std::string &at);
  Vector norm(const std::string &at, int64_t width);
  Vector mix(const std::string &at, const std::string &what);
  LayerWeights layer(int64_t i);
};

Vector Layout::norm(const std::string &at, int64_t width) {
  return bind.vector(at + ".weight", {{width}});
}

/// Scores of attention residuals: one vector for norm and projection.
Vector Layout::mix(const std::string &at, const std::string &what) {
  if (c.residualBlock == 0)
    return {};
  Vector norm = bind.vector(at + what + "_norm.weight", {{c.hidden}});
  Vector proj =
      bind.vector(at + what + "_proj.weight", {{1, c.hidden}, {c.hidden}});
  for (size_t i = 0; i < norm.size() && i < proj.size(); ++i)
    norm[i] *= proj[i];
  return norm;
}

KdaWeights Layout::kda(const std::string &at) {
  int64_t width = c.kdaWidth(), taps = c.convWidth;
  KdaWeights w;
  w.q = bind.matrix(at + "q_proj", width, c.hidden);
  w.k = bind.matrix(at + "k_proj", width, c.hidden);
  w.v = bind.matrix(at + "v_proj", width, c.hidden);
  std::vector<std::vector<int64_t>> conv = {{width, 1, taps}, {width, taps}};
  w.qConv = bind.vector(at + "q_conv1d.weight", conv);
  w.kConv = bind.vector(at + "k_conv1d.weight", conv);
  w.vConv = bind.vector(at + "v_conv1d.weight", conv);
  w.fA = bind.matrix(at + "f_a_proj", c.kdaDim, c.hidden);
  w.fB = bind.matrix(at + "f_b_proj", width, c.kdaDim);
  w.beta = bind.matrix(at + "b_proj", c.kdaHeads, c.hidden);
  if (c.fullRankGate) {
    w.g = bind.matrix(at + "g_proj", width, c.hidden);
  } else {
    w.gA = bind.matrix(at + "g_a_proj", c.kdaDim, c.hidden);
    w.gB = bind.matrix(at + "g_b_proj", width, c.kdaDim);
  }
  w.aLog = bind.padded(at + "A_log", c.kdaHeads);
  w.dtBias = bind.vector(at + "dt_bias", {{width}, {c.kdaHeads, c.kdaDim}});
  w.oNorm = norm(at + "o_norm", c.kdaDim);
  w.o = bind.matrix(at + "o_proj", c.hidden, width);
  return w;
}

MlaWeights Layout::mla(const std::string &at) {
  int64_t queries = c.heads * c.queryDim(), values = c.heads * c.valueDim;
  MlaWeights w;
  if (c.queryRank > 0) {
    w.qA = bind.matrix(at + "q_a_proj", c.queryRank, c.hidden);
    w.qNorm = norm(at + "q_a_layernorm", c.queryRank);
    w.qB = bind.matrix(at + "q_b_proj", queries, c.queryRank);
  } else {
    w.q = bind.matrix(at + "q_proj", queries, c.hidden);
  }
  w.kvA = bind.matrix(at + "kv_a_proj_with_mqa", c.cacheDim(), c.hidden);
  w.kvNorm = norm(at + "kv_a_layernorm", c.latentRank);
  w.kvB = bind.matrix(at + "kv_b_proj", c.heads * (c.nopeDim + c.valueDim),
                      c.latentRank);
  if (c.attentionGate)
    w.g = bind.matrix(at + "g_proj", values, c.hidden);
  w.o = bind.matrix(at + "o_proj", c.hidden, values);
  return w;
}

MlpWeights Layout::mlp(const std::string &at, int64_t width) {
  return {bind.matrix(at + "gate_proj", width, c.hidden),
          bind.matrix(at + "up_proj", width, c.hidden),
          bind.matrix(at + "down_proj", c.hidden, width)};
}

MoeWeights Layout::moe(const std::string &at) {
  int64_t in = c.expertInput, width = c.expertWidth;
  MoeWeights w;
  w.router = bind.matrix(at + "gate", c.experts, c.hidden);
  w.bias = bind.vector(at + "gate.e_score_correction_bias", {{c.experts}});
  for (int64_t e = 0; e < c.experts && bind.status().ok(); ++e) {
    std::string expert = at + "experts." + std::to_string(e) + ".";
    w.experts.push_back({bind.expert(expert + "w1", width, in),
                         bind.expert(expert + "w3", width, in),
                         bind.expert(expert + "w2", in, width)});
  }
  if (c.sharedExperts > 0)
    w.shared = mlp(at + "shared_experts.", c.sharedExperts * width);
  if (c.isLatentMoe()) {
    w.toLatent = bind.matrix(at + "routed_expert_down_proj", in, c.hidden);
    w.fromLatent = bind.matrix(at + "routed_expert_up_proj", c.hidden, in);
    if (c.latentNorm)
      w.latentNorm = norm(at + "routed_expert_norm", in);
  }
  return w;
}

LayerWeights Layout::layer(int64_t i) {
  std::string at = prefix + "model.layers." + std::to_string(i) + ".";
  LayerWeights w;
  w.inputNorm = norm(at + "input_layernorm", c.hidden);
  w.postNorm = norm(at + "post_attention_layernorm", c.hidden);
  if (c.mixers[static_cast<size_t>(i)] == Mixer::Kda)
    w.kda = kda(at + "self_attn.");
  else
    w.mla = mla(at + "self_attn.");
  if (c.isMoe(i))
    w.moe = moe(at + "block_sparse_moe.");
  else
    w.mlp = mlp(at + "mlp.", c.denseWidth);
  // Layer 0 has no past to mix; its tensors may exist and do nothing.
  if (i > 0)
    w.attentionMix = mix(at, "self_attention_res");
  else
    for (const char *part : {"norm", "proj"})
      bind.ignore(at + "self_attention_res_" + part + ".weight");
  w.mlpMix = mix(at, "mlp_res");
  return w;
}

} // namespace

int64_t Matrix::bytes() const {
  switch (type) {
  case MatrixType::F32:
    return out * in * 4;
  case MatrixType::F16:
  case MatrixType::BF16:
    return out * in * 2;
  case MatrixType::Mxfp4:
    return out * (in / 2 + in / 32);
  }
  return 0;
}

static StatusOr<Weights> bindAll(const ModelConfig &config, Binder &bind,
                                 const std::string &prefix) {
  Layout layout{config, bind, prefix};
  std::string at = prefix + "model.";
  Weights weights;
  weights.embedding =
      bind.matrix(at + "embed_tokens", config.vocab, config.hidden);
  weights.head =
      config.tiedEmbeddings
          ? weights.embedding
          : bind.matrix(prefix + "lm_head", config.vocab, config.hidden);
  weights.norm = layout.norm(at + "norm", config.hidden);
  weights.outputMix = layout.mix(at, "output_attn_res");
  for (int64_t i = 0; i < config.layers() && bind.status().ok(); ++i)
    weights.layers.push_back(layout.layer(i));
  if (!bind.status().ok())
    return bind.status();
  weights.unknownTensors = bind.unused();
  return weights;
}

/// Text models are stored alone or in a multimodal one; the file decides, and
/// the config where it has neither.
static std::string prefixOf(const ModelConfig &config,
                            const Checkpoint &checkpoint) {
  for (const std::string &prefix :
       {config.prefix, std::string(), std::string("language_model.")})
    if (checkpoint.find(prefix + "model.embed_tokens.weight"))
      return prefix;
  return config.prefix;
}

/// Layers that the config does not have are another model's, not unknown.
static Status checkNoMoreLayers(const ModelConfig &config,
                                const std::string &prefix,
                                const std::vector<std::string> &unknown) {
  std::string at = prefix + "model.layers.";
  for (const std::string &name : unknown) {
    int64_t layer = 0;
    const char *end = name.data() + name.size();
    if (name.compare(0, at.size(), at) == 0 &&
        std::from_chars(name.data() + at.size(), end, layer).ec ==
            std::errc() &&
        layer >= config.layers())
      return Status(ErrorCode::Corrupt,
                    config.name + " has " + std::to_string(config.layers()) +
                        " layers, but the checkpoint has tensor " + name);
  }
  return Status::success();
}

StatusOr<Weights> bindWeights(const ModelConfig &config,
                              const Checkpoint &checkpoint) {
  Binder bind(checkpoint);
  std::string prefix = prefixOf(config, checkpoint);
  StatusOr<Weights> weights = bindAll(config, bind, prefix);
  if (!weights.ok())
    return weights;
  std::vector<std::string> &unknown = weights->unknownTensors;
  unknown.insert(unknown.end(), checkpoint.unlisted().begin(),
                 checkpoint.unlisted().end());
  if (Status s = checkNoMoreLayers(config, prefix, unknown); !s.ok())
    return s;
  weights->memory = std::make_shared<Checkpoint>(checkpoint);
  return weights;
}

static StatusOr<Weights> madeWeights(const ModelConfig &config,
                                     std::shared_ptr<RandomTensors> tensors) {
  Binder bind(*tensors);
  StatusOr<Weights> weights = bindAll(config, bind, config.prefix);
  if (weights.ok())
    weights->memory = tensors;
  return weights;
}

StatusOr<Weights> randomWeights(const ModelConfig &config, uint64_t seed) {
  // The system would grant more memory than there is, and end the program
  // later.
  auto outlines = std::make_shared<RandomTensors>(seed, false);
  if (StatusOr<Weights> w = madeWeights(config, outlines); !w.ok())
    return w;
  StatusOr<int64_t> machine = hostMemory()->available();
  if (!machine.ok())
    return machine.status();
  if (outlines->bytes() > *machine)
    return Status(ErrorCode::InvalidArgument,
                  config.name + ": random weights need " +
                      std::to_string(outlines->bytes()) + " bytes, but " +
                      hostMemory()->place() + " has " +
                      std::to_string(*machine));
  return madeWeights(config, std::make_shared<RandomTensors>(seed, true));
}

StatusOr<Weights> outlineWeights(const ModelConfig &config, uint64_t seed) {
  return madeWeights(config, std::make_shared<RandomTensors>(seed, false));
}

int64_t activeBytes(const ModelConfig &config, const Weights &weights) {
  int64_t total = weights.head.bytes();
  auto add = [&](std::initializer_list<const Matrix *> matrices) {
    for (const Matrix *m : matrices)
      total += m->bytes();
  };
  for (const LayerWeights &layer : weights.layers) {
    const KdaWeights &k = layer.kda;
    const MlaWeights &m = layer.mla;
    const MoeWeights &e = layer.moe;
    add({&k.q, &k.k, &k.v, &k.fA, &k.fB, &k.beta, &k.gA, &k.gB, &k.g, &k.o});
    add({&m.q, &m.qA, &m.qB, &m.kvA, &m.kvB, &m.g, &m.o});
    add({&layer.mlp.gate, &layer.mlp.up, &layer.mlp.down});
    add({&e.router, &e.toLatent, &e.fromLatent});
    add({&e.shared.gate, &e.shared.up, &e.shared.down});
    if (!e.experts.empty())
      total +=
          config.topK * (e.experts[0].gate.bytes() + e.experts[0].up.bytes() +
                         e.experts[0].down.bytes());
  }
  return total;
}

} // namespace kdac::model
