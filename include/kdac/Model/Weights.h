// Promises: every weight of a model, bound to the tensors of its checkpoint,
// each checked for presence, dtype and shape before anything runs. Does not:
// copy matrices; they stay in the mapped files, in the files' dtypes.
#ifndef KDAC_MODEL_WEIGHTS_H
#define KDAC_MODEL_WEIGHTS_H

#include "kdac/Model/Config.h"
#include "kdac/Model/Safetensors.h"

namespace kdac::model {

enum class MatrixType {
  F32,
  F16,
  BF16,
  Mxfp4, ///< E2M1 pairs, low nibble first, one E8M0 scale for 32 inputs
};

/// A linear layer's weight [out, in], row-major.
struct Matrix {
  const void *data = nullptr;
  const uint8_t *scales = nullptr; ///< Mxfp4: [out, in / 32]
  MatrixType type = MatrixType::F32;
  int64_t out = 0, in = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t bytes() const;
};

/// Small parameters, as f32.
struct Vector : std::vector<float> {
  using std::vector<float>::vector;
  /// Their copy where a GPU's operations read them; null on the host.
  const void *device = nullptr;
};

/// hybrid-model.md 1.4. P = kdaHeads * kdaDim.
struct KdaWeights {
  Matrix q, k, v;             ///< [P, hidden]
  Vector qConv, kConv, vConv; ///< [P, W]
  Matrix fA, fB;              ///< [kdaDim, hidden], [P, kdaDim]
  Matrix beta;                ///< [kdaHeads, hidden]
  Matrix gA, gB;              ///< low-rank output gate, as fA and fB
  Matrix g;                   ///< or the full-rank one, [P, hidden]
  Vector aLog, dtBias;        ///< [kdaHeads], [P]
  Vector oNorm;               ///< [kdaDim]
  Matrix o;                   ///< [hidden, P]
};

/// hybrid-model.md 1.5. H = heads.
struct MlaWeights {
  Matrix q;      ///< [H queryDim, hidden], or
  Matrix qA, qB; ///< [queryRank, hidden], [H queryDim, queryRank]
  Vector qNorm;  ///< [queryRank]
  Matrix kvA;    ///< [latentRank + ropeDim, hidden]
  Vector kvNorm; ///< [latentRank]
  Matrix kvB;    ///< [H (nopeDim + valueDim), latentRank]
  Matrix g;      ///< [H valueDim, hidden], where the config has a gate
  Matrix o;      ///< [hidden, H valueDim]
};

/// A gated MLP.
struct MlpWeights {
  Matrix gate, up; ///< [width, in]
  Matrix down;     ///< [in, width]
};

/// hybrid-model.md 1.6 and 2.2.
struct MoeWeights {
  Matrix router; ///< [experts, hidden]
  Vector bias;   ///< [experts], for the choice only
  std::vector<MlpWeights> experts;
  MlpWeights shared; ///< without matrices where there is none
  Matrix toLatent;   ///< [expertInput, hidden], latent MoE only
  Matrix fromLatent; ///< [hidden, expertInput]
  Vector latentNorm; ///< [expertInput]
};

struct LayerWeights {
  Vector inputNorm, postNorm;  ///< [hidden]
  KdaWeights kda;              ///< of a KDA layer
  MlaWeights mla;              ///< of an MLA layer
  MlpWeights mlp;              ///< of a dense layer
  MoeWeights moe;              ///< of an MoE layer
  Vector attentionMix, mlpMix; ///< [hidden], norm times projection
};

struct Weights {
  Matrix embedding; ///< [vocab, hidden]
  Matrix head;      ///< the same or another
  Vector norm;      ///< [hidden]
  Vector outputMix; ///< [hidden]
  std::vector<LayerWeights> layers;
  std::vector<std::string> unknownTensors; ///< in the files, but not used
  std::shared_ptr<void> memory;            ///< what the matrices point into
};

/// Binds the tensors of `checkpoint`, with "language_model." before their names
/// or without. The error names file, tensor, what it is and what it should be;
/// tensors of layers beyond the config's are one.
StatusOr<Weights> bindWeights(const ModelConfig &config,
                              const Checkpoint &checkpoint);

/// Weights of the right shapes with random bf16 values, for speed tests;
/// refused where the machine has less memory.
StatusOr<Weights> randomWeights(const ModelConfig &config, uint64_t seed);

/// The same with matrices that have shapes and no memory: not to be read, but
/// for machines that make values of their own.
StatusOr<Weights> outlineWeights(const ModelConfig &config, uint64_t seed);

/// Bytes of the matrices that one token reads: all but the embedding and the
/// experts it is not sent to.
int64_t activeBytes(const ModelConfig &config, const Weights &weights);

} // namespace kdac::model

#endif // KDAC_MODEL_WEIGHTS_H
