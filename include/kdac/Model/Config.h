// Promises: a hybrid model's shape, read from a Hugging Face config.json of the
// Kimi Linear or Kimi K3 family, with every value checked. Does not: look at
// weights, or accept what the forward pass does not do.
#ifndef KDAC_MODEL_CONFIG_H
#define KDAC_MODEL_CONFIG_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdac::model {

/// What mixes tokens in a layer.
enum class Mixer {
  Kda, ///< a recurrent state per head
  Mla, ///< softmax attention over a latent cache
};

/// What a gated MLP does with gate and up.
enum class Activation {
  Silu, ///< silu(gate) up
  Situ, ///< beta tanh(gate / beta) sigmoid(gate) linear tanh(up / linear)
};

/// Everything the forward pass needs to know. Widths are in elements.
/// Reference: hybrid-model.md 1.1 and 2.1.
struct ModelConfig {
  std::string name;   ///< what errors call it: a path or a preset
  std::string prefix; ///< usual one of tensors: "" or "language_model."
  int64_t vocab = 0, hidden = 0;
  std::vector<Mixer> mixers; ///< one per layer
  double normEps = 1e-5;     ///< of block, final, output and latent-MoE norms
  /// Of kv_a_layernorm and q_a_layernorm: the reference code passes no epsilon
  /// there, so that its class default applies (hybrid-model.md 1.3).
  double latentNormEps = 1e-6;
  Activation activation = Activation::Silu;
  double situBeta = 4, situLinearBeta = 25;
  /// Layers between two entries of the bank of attention residuals; 0: a plain
  /// residual stream.
  int64_t residualBlock = 0;

  // KDA
  int64_t kdaHeads = 0, kdaDim = 0; ///< K = V = kdaDim
  int64_t convWidth = 4;
  /// Present: g = bound sigmoid(exp(A) x); absent: g = -exp(A) softplus(x).
  std::optional<double> gateLowerBound;
  bool fullRankGate = false; ///< g_proj instead of g_a_proj, g_b_proj

  // MLA
  int64_t heads = 0;
  int64_t queryRank = 0; ///< 0: q_proj, without a low-rank step
  int64_t latentRank = 0, nopeDim = 0, ropeDim = 0, valueDim = 0;
  bool attentionGate = false;

  // Feed-forward
  int64_t denseWidth = 0;
  int64_t experts = 0; ///< 0: every layer is dense
  int64_t topK = 0, sharedExperts = 0, expertWidth = 0;
  int64_t expertInput = 0; ///< hidden, or less with a latent MoE
  bool latentNorm = false;
  int64_t firstDense = 0, moeEvery = 1;
  int64_t groups = 1, topGroups = 1;
  bool renormalise = true;
  double routedScale = 1;

  bool tiedEmbeddings = false;
  std::vector<int64_t> stopTokens; ///< eos_token_id
  int64_t maxTokens = 0;           ///< longest context; 0: not said
  std::vector<std::string> unknownKeys;

  int64_t layers() const { return static_cast<int64_t>(mixers.size()); }
  int64_t count(Mixer mixer) const;
  /// How many entries the bank of attention residuals ever has.
  int64_t residualEntries() const;
  bool isMoe(int64_t layer) const {
    return experts > 0 && layer >= firstDense && layer % moeEvery == 0;
  }
  bool isLatentMoe() const { return expertInput != hidden; }
  int64_t kdaWidth() const { return kdaHeads * kdaDim; }
  int64_t queryDim() const { return nopeDim + ropeDim; }
  int64_t cacheDim() const { return latentRank + ropeDim; } ///< per token
};

/// The model that `text` describes. Errors name `name`, the key, its value and
/// what would work. Keys that say nothing about the forward pass are skipped;
/// unknown ones are listed in `unknownKeys`.
StatusOr<ModelConfig> configFromJson(std::string_view text,
                                     const std::string &name);

/// The config of the file at `path`.
StatusOr<ModelConfig> readConfig(const std::string &path);

/// A published model by name: kimi-linear-48b or kimi-k3.
StatusOr<ModelConfig> presetConfig(std::string_view name);

} // namespace kdac::model

#endif // KDAC_MODEL_CONFIG_H
