// Promises: many requests through one session with continuous batching: a
// request starts as soon as a slot is free, prompts go through in pieces, and
// sequences that run get a token between them. Does not: tokenize or print.
#ifndef KDAC_MODEL_GENERATE_H
#define KDAC_MODEL_GENERATE_H

#include "kdac/Model/Forward.h"
#include "kdac/Model/Sampler.h"

#include <functional>

namespace kdac::model {

/// What to continue, and until when.
struct GenerateRequest {
  std::vector<int32_t> prompt;
  int64_t newTokens = 0; ///< at most
  SamplerOptions sampling;
  int32_t slot = -1;      ///< an open slot to continue from; -1: a fresh one
  bool keepsSlot = false; ///< leave the slot open at the end
};

struct GenerateResult {
  std::vector<int32_t> tokens; ///< without the stop token
  int32_t stopToken = -1;      ///< -1: the number of tokens ended it
  int32_t slot = -1;           ///< where keepsSlot left it
  double firstTokenSeconds = 0, seconds = 0; ///< since the call
};

/// Counts of a whole run.
struct GenerateStats {
  int64_t promptTokens = 0, newTokens = 0, forwardCalls = 0;
  double prefillSeconds = 0, decodeSeconds = 0;
};

/// Called with each token as soon as it is known.
using OnToken = std::function<void(size_t request, int32_t token)>;

/// Refuses what no session makes right: empty prompts, tokens that the
/// vocabulary lacks, options of sampling. The error names the request.
Status checkRequests(const ModelConfig &config,
                     const std::vector<GenerateRequest> &requests);

/// Runs all requests to their ends. Requests that can never run are refused
/// before anything does; the error names the request. `stops` end a sequence.
/// Logits that are not numbers are an error, not a token.
StatusOr<std::vector<GenerateResult>>
generate(const ModelConfig &config, const Weights &weights, Ops &ops,
         Session &session, const std::vector<GenerateRequest> &requests,
         const std::vector<int64_t> &stops, const OnToken &onToken = nullptr,
         GenerateStats *stats = nullptr);

} // namespace kdac::model

#endif // KDAC_MODEL_GENERATE_H
