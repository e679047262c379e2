// Promises: everything a running model remembers and writes, in one struct:
// states and convolution inputs in slots, latent rows in pages, activations;
// planned before it is allocated. Does not: compute.
#ifndef KDAC_MODEL_SESSION_H
#define KDAC_MODEL_SESSION_H

#include "kdac/Model/Ops.h"
#include "kdac/Model/Plan.h"

#include <memory>
#include <string>

namespace kdac::model {

struct SessionLimits {
  int64_t slots = 1;         ///< sequences at a time
  int64_t contextTokens = 0; ///< the longest sequence
  int64_t totalTokens = 0;   ///< of all sequences; 0: slots * contextTokens
  int64_t batchTokens = 512; ///< rows of a forward call
  /// Of activations, convolution inputs and latents. States, router and logits
  /// are always f32.
  Element element = Element::F32;
  /// Rows with logits of a forward call; 0: one for each slot. More of them let
  /// one call score several tokens of a sequence, as drafts want it. A GPU's
  /// operations take at most as many as pieces.
  int64_t outputs = 0;
};

/// Activations of one call, each [batchTokens, its width].
struct Activations {
  Rows stream, normed, branch, mixed; ///< [hidden]
  Rows q, k, v;                       ///< [P]
  Rows low, gateLow;                  ///< [kdaDim], of low-rank projections
  Rows decay, z, o;                   ///< [P]
  Rows beta;                          ///< [kdaHeads]
  Rows queryLow;                      ///< [queryRank]
  Rows query;                         ///< [H queryDim]
  Rows latent;                        ///< [cacheDim]
  Rows values, valueGate;             ///< [H valueDim]
  Rows gate, up;                      ///< [widest MLP but for experts]
  Rows router;                        ///< [experts]
  Rows expertIn, expertOut;           ///< [expertInput]
  int64_t bankPitch = 0;   ///< elements between attention residuals' tensors
  Rows chosen;             ///< [outputs, hidden], rows with logits
  Rows logits;             ///< [outputs, vocab]
  Routing routing;         ///< [batchTokens, topK]
  int32_t *best = nullptr; ///< [outputs], the largest of each logits row

  /// Attention residuals' entry `i`, like the stream and behind it.
  Rows bank(int64_t i) const;
};

/// What a slot was at a token: recurrent states cannot be cut shorter, so that
/// going back needs a copy of them.
class Mark;

class Session {
public:
  /// Bytes of caches and activations. The error names what does not fit.
  static StatusOr<int64_t> plannedBytes(const ModelConfig &config,
                                        const SessionLimits &limits);
  /// Allocates everything in `memory`; refused where it is too small.
  static StatusOr<Session>
  create(const ModelConfig &config, const SessionLimits &limits,
         std::shared_ptr<Memory> memory = hostMemory());
  Session(Session &&) noexcept;
  Session &operator=(Session &&) noexcept;
  ~Session();

  const SessionLimits &limits() const;
  Memory &memory() const;
  Activations &activations();
  /// Caches of the layer, which has that mixer.
  KdaCache kda(int64_t layer);
  MlaCache mla(int64_t layer);

  /// A slot for a fresh sequence, or an error where all are in use.
  StatusOr<int32_t> open();
  /// Gives the slot and its pages back.
  void close(int32_t slot);
  bool isOpen(int64_t slot) const;
  /// Tokens in the slot's caches.
  int64_t length(int32_t slot) const;
  /// Pages for `tokens` more tokens; the error says which limit is too small.
  Status reserve(int32_t slot, int64_t tokens);
  /// Brings the page table to where operations read it.
  Status publish();
  /// The forward pass has put `tokens` more tokens into the caches.
  void advance(int32_t slot, int64_t tokens);

  /// Fills all caches with noise, for speed tests of contexts that nobody has
  /// computed.
  Status fillWithNoise();

  /// Another slot that continues from the same tokens.
  StatusOr<int32_t> fork(int32_t slot);
  /// Remembers the slot as it is, for rollback().
  StatusOr<Mark> mark(int32_t slot) const;
  /// Back to the mark. Refused where it is not of this slot's own past: of
  /// another slot, another sequence, or tokens that were rolled back since.
  Status rollback(int32_t slot, const Mark &mark);
  /// The slot's memory as a file, and back into a fresh slot. The file knows
  /// the model's shape, the kinds of its layers and its own digest; that the
  /// weights are the same is the caller's business.
  Status save(int32_t slot, const std::string &path) const;
  StatusOr<int32_t> restore(const std::string &path);
  /// Tokens in the file's caches, as its header says; restore() checks it.
  static StatusOr<int64_t> savedTokens(const std::string &path);

private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

class Mark {
public:
  int64_t length() const { return tokens; }

private:
  friend class Session;
  int32_t slot = 0;
  int64_t tokens = 0;
  int64_t branch = 0;      ///< of the slot's history at its last token
  std::vector<char> fixed; ///< states and convolution inputs
};

} // namespace kdac::model

#endif // KDAC_MODEL_SESSION_H
