// Promises: what kdac-run does, as functions of its options. Does not: parse.
#ifndef KDAC_TOOLS_KDAC_RUN_COMMANDS_H
#define KDAC_TOOLS_KDAC_RUN_COMMANDS_H

#include "Options.h"
#include "kdac/Model/Generate.h"
#include "kdac/Model/GpuOps.h"
#include "kdac/Model/Tokenizer.h"

namespace kdac::runtool {

// Each returns the exit code.
int runPlan(const Options &options);
int runGenerate(const Options &options);
int runChat(const Options &options);
int runTimes(const Options &options);

/// Prints "kdac-run: SENTENCE" and returns the exit code of a refusal.
int refuse(const std::string &sentence);
int fail(const Status &status);

/// The kernels that the program carries, for the host or for GPUs.
std::string carriedPack(bool isGpu);

/// A model that is ready to run.
struct Engine {
  model::ModelConfig config;
  std::optional<model::Checkpoint> checkpoint; ///< of weights on the host
  model::Weights weights;
  std::shared_ptr<model::Gpu> gpu; ///< null: the host
  std::unique_ptr<model::Ops> ops;
  std::unique_ptr<model::Session> session;
};

/// Refuses what is not a folder of a model, by what it is instead.
Status checkModel(const Options &options);
/// Config and weights, with a note on stderr of keys and tensors nobody knows.
/// `isAllMla`: every layer of a model with random weights is an MLA layer.
Status loadModel(const Options &options, bool isAllMla, Engine &engine);
/// Session and operations for sequences of up to `context` tokens, everything
/// refused that can be; then the weights are brought into memory.
Status prepare(const Options &options, int64_t context, int64_t slots,
               Engine &engine);
/// Notes a context that is longer than what the model was made for.
void noteContext(const Engine &engine);
/// Prompt and decode speed and the time to the first token, on stderr.
void printSpeed(const std::vector<model::GenerateResult> &results,
                const model::GenerateStats &stats, const Engine &engine);
/// Stop tokens of the config and the tokenizer's own end.
std::vector<int64_t> stopsOf(const Options &options, const Engine &engine,
                             const model::Tokenizer *tokenizer);

/// The requests of --prompt, --tokens or --batch. `tokenizer` is opened when a
/// text needs it.
StatusOr<std::vector<model::GenerateRequest>>
readRequests(const Options &options,
             std::optional<model::Tokenizer> &tokenizer);

} // namespace kdac::runtool

#endif // KDAC_TOOLS_KDAC_RUN_COMMANDS_H
