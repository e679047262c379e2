// Promises: how much memory the caches of a hybrid model take, per layer kind
// and against the same model with MLA only. Does not: allocate, or count
// weights and activations.
#ifndef KDAC_MODEL_PLAN_H
#define KDAC_MODEL_PLAN_H

#include "kdac/Model/Config.h"

namespace kdac::model {

/// Bytes of the elements of each cache; the state is always f32.
struct CacheTypes {
  int64_t conv = 2;   ///< bf16
  int64_t latent = 2; ///< bf16
};

/// The cache arithmetic of hybrid-model.md 3.2, in bytes and tokens.
struct CachePlan {
  int64_t kdaLayers = 0, mlaLayers = 0;
  int64_t statePerLayer = 0;  ///< per request: HV V K f32
  int64_t convPerLayer = 0;   ///< per request: three of D channels, W entries
  int64_t latentPerToken = 0; ///< per request and MLA layer
  int64_t context = 0, batch = 0;

  int64_t fixedPerRequest() const {
    return kdaLayers * (statePerLayer + convPerLayer);
  }
  int64_t growthPerToken() const { return mlaLayers * latentPerToken; }
  /// Of the whole batch at its full context.
  int64_t hybridBytes() const {
    return batch * (fixedPerRequest() + growthPerToken() * context);
  }
  /// The same model if every layer were MLA.
  int64_t allMlaBytes() const {
    return batch * (kdaLayers + mlaLayers) * latentPerToken * context;
  }
  /// The context beyond which the hybrid's cache is the smaller one: the fixed
  /// bytes of a KDA layer over the bytes per token of an MLA layer. 0 without
  /// KDA layers.
  double crossover() const;
};

/// The plan, or an error where the bytes exceed 63 bits. context and batch are
/// not negative.
StatusOr<CachePlan> planCaches(const ModelConfig &config, int64_t context,
                               int64_t batch, CacheTypes types = {});

/// Rows of cells for people; the first row is the header.
std::vector<std::vector<std::string>> planTable(const CachePlan &plan);

} // namespace kdac::model

#endif // KDAC_MODEL_PLAN_H
