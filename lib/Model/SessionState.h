// Promises: what Session hides: memory, slots and pages. Does not: belong to
// the interface.
#ifndef KDAC_LIB_MODEL_SESSIONSTATE_H
#define KDAC_LIB_MODEL_SESSIONSTATE_H

#include "kdac/Model/Session.h"

#include <algorithm>

namespace kdac::model {

struct Session::State {
  State(const ModelConfig &config, const SessionLimits &limits,
        std::shared_ptr<Memory> memory = nullptr);

  ModelConfig config;
  SessionLimits limits;
  int64_t pages = 0, pagesPerSlot = 0;
  std::vector<KdaCache> kda;  ///< by layer; empty for MLA layers
  std::vector<char *> latent; ///< by layer; null for KDA layers
  std::vector<int32_t> table; ///< [slots, pagesPerSlot], -1: no page
  std::vector<int32_t> freePages;
  std::vector<bool> isOpen;     ///< [slots]
  std::vector<int64_t> lengths; ///< [slots]
  /// [slots]: where branches of the slot's history begin, oldest first. Tokens
  /// of one branch were never rolled back.
  struct Branch {
    int64_t begin, number;
  };
  std::vector<std::vector<Branch>> branches;
  int64_t lastBranch = 0;
  std::shared_ptr<Memory> memory; ///< of everything below
  char *cacheBase = nullptr;      ///< of states, inputs and latents
  int64_t cacheBytes = 0;         ///< of those
  int32_t *placedTable = nullptr; ///< `table` where operations read it
  bool isPlaced = false;          ///< they are the same
  Activations activations;

  /// Lays caches, then activations, out in memory that begins at `cache` and
  /// `activation`, or only counts where both are null.
  struct Sizes {
    int64_t caches = 0, work = 0; ///< bytes
  };
  Sizes layOut(char *cache, char *activation);

  /// Of a slot in one KDA layer: state, then q, k and v inputs.
  int64_t stateElements() const { return config.kdaWidth() * config.kdaDim; }
  int64_t stateBytes() const { return stateElements() * 4; }
  int64_t convBytes() const {
    return config.kdaWidth() * config.convWidth * bytesOf(limits.element);
  }
  int64_t fixedBytes() const {
    return config.count(Mixer::Kda) * (stateBytes() + 3 * convBytes());
  }
  int64_t latentBytes() const {
    return config.cacheDim() * bytesOf(limits.element);
  }
  /// Calls each(pointer, bytes) for what a slot has in KDA layers, until one
  /// fails.
  template <typename Each> Status forFixed(int32_t slot, Each each) const {
    for (const KdaCache &cache : kda) {
      if (!cache.state)
        continue;
      auto *state = reinterpret_cast<char *>(cache.state);
      if (Status s = each(state + slot * stateBytes(), stateBytes()); !s.ok())
        return s;
      for (void *conv : {cache.q, cache.k, cache.v})
        if (Status s = each(static_cast<char *>(conv) + slot * convBytes(),
                            convBytes());
            !s.ok())
          return s;
    }
    return Status::success();
  }
  /// Calls each(pointer, bytes) for the first `tokens` latent rows of a
  /// slot, a page at a time, until one fails.
  template <typename Each>
  Status forLatent(int32_t slot, int64_t tokens, Each each) const;
  /// Fills what a slot has in KDA layers.
  Status writeFixed(int32_t slot, const char *from) const;
  /// The branch that the token before `tokens` is in, which the slot has.
  int64_t branchAt(int32_t slot, int64_t tokens) const;
  int64_t pagesOf(int64_t tokens) const;
  void releasePages(int32_t slot, int64_t kept);
  MlaCache mlaCache(int64_t layer) const;
};

/// Tokens of a page.
constexpr int64_t pageTokens = 64;

template <typename Each>
Status Session::State::forLatent(int32_t slot, int64_t tokens,
                                 Each each) const {
  for (char *pages : latent)
    for (int64_t t = 0; pages && t < tokens; t += pageTokens) {
      int64_t index = slot * pagesPerSlot + t / pageTokens;
      int64_t page = table[static_cast<size_t>(index)];
      int64_t rows = std::min(pageTokens, tokens - t);
      if (Status s = each(pages + page * pageTokens * latentBytes(),
                          rows * latentBytes());
          !s.ok())
        return s;
    }
  return Status::success();
}

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_SESSIONSTATE_H
