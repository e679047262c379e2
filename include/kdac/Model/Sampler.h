// Promises: one token from a row of logits, the same on every machine for the
// same seed. Does not: run the model.
#ifndef KDAC_MODEL_SAMPLER_H
#define KDAC_MODEL_SAMPLER_H

#include "kdac/Runtime/Status.h"

#include <cstdint>

namespace kdac::model {

struct SamplerOptions {
  double temperature = 0; ///< 0: greedy, the best token
  int64_t topK = 0;       ///< only the k best; 0: all
  double topP = 1;        ///< only the fewest best whose probabilities reach p
  uint64_t seed = 0;
};

/// Refuses negative temperatures, top-p outside of (0, 1] and negative top-k.
Status checkSampler(const SamplerOptions &options);

/// Draws the tokens of one sequence.
class Sampler {
public:
  explicit Sampler(const SamplerOptions &options)
      : options(options), state(options.seed) {}

  /// An index below `count`, which is not 0. Of equal logits the first counts
  /// as better; NaN is worse than anything.
  int32_t pick(const float *logits, int64_t count);

private:
  double uniform(); ///< in [0, 1)

  SamplerOptions options;
  uint64_t state;
};

} // namespace kdac::model

#endif // KDAC_MODEL_SAMPLER_H
