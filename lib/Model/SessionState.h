// Promises: what Session hides: memory, slots and pages. Does not: belong to
// the interface.
#ifndef KDAC_LIB_MODEL_SESSIONSTATE_H
#define KDAC_LIB_MODEL_SESSIONSTATE_H

#include "AlignedBuffer.h"
#include "kdac/Model/Session.h"

namespace kdac::model {

struct Session::State {
  State(const ModelConfig &config, const SessionLimits &limits);

  ModelConfig config;
  SessionLimits limits;
  int64_t pages = 0, pagesPerSlot = 0;
  std::vector<KdaCache> kda;   ///< by layer; empty for MLA layers
  std::vector<float *> latent; ///< by layer; null for KDA layers
  std::vector<int32_t> table;  ///< [slots, pagesPerSlot], -1: no page
  std::vector<int32_t> freePages;
  std::vector<bool> isOpen;     ///< [slots]
  std::vector<int64_t> lengths; ///< [slots]
  AlignedBuffer caches, work;
  std::vector<int32_t> chosenExperts;
  std::vector<float> chosenWeights;
  Activations activations;

  /// Lays caches, then activations, out in memory that begins at `cache` and
  /// `activation`, or only counts where both are null.
  struct Sizes {
    int64_t caches = 0, work = 0; ///< bytes
  };
  Sizes layOut(char *cache, char *activation);

  /// Elements of a slot in one KDA layer: state, then q, k and v inputs.
  int64_t stateElements() const { return config.kdaWidth() * config.kdaDim; }
  int64_t convElements() const { return config.kdaWidth() * config.convWidth; }
  int64_t fixedElements() const {
    return config.count(Mixer::Kda) * (stateElements() + 3 * convElements());
  }
  /// Calls each(pointer, elements) for what a slot has in KDA layers.
  template <typename Each> void forFixed(int32_t slot, Each each) const {
    for (const KdaCache &cache : kda) {
      if (!cache.state)
        continue;
      each(cache.state + slot * stateElements(), stateElements());
      for (float *conv : {cache.q, cache.k, cache.v})
        each(conv + slot * convElements(), convElements());
    }
  }
  int64_t pagesOf(int64_t tokens) const;
  void releasePages(int32_t slot, int64_t kept);
  MlaCache mlaCache(int64_t layer) const;
};

/// Tokens of a page.
constexpr int64_t pageTokens = 64;

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_SESSIONSTATE_H
