// Promises: kdac-run's command line as plain data. Does not: open files.
#ifndef KDAC_TOOLS_KDAC_RUN_OPTIONS_H
#define KDAC_TOOLS_KDAC_RUN_OPTIONS_H

#include "kdac/Model/Memory.h"
#include "kdac/Model/Sampler.h"

#include <optional>
#include <string>
#include <vector>

namespace kdac::runtool {

struct Options {
  // The model
  std::string model;  ///< a folder; with --plan also a preset or a config.json
  std::string config; ///< of --random-weights
  bool hasRandomWeights = false;
  std::string pack; ///< empty: the one that kdac-run carries
  std::string device = "host";
  std::string dtype; ///< empty: f32 on the host, bf16 on a GPU
  int threads = 0;
  bool isWithoutBlas = false;

  // What to do
  bool isPlan = false;
  bool isChat = false;
  std::optional<std::string> prompt;
  std::string tokens; ///< a file of token ids
  std::string batch;  ///< --plan: a number; else a file of prompts
  std::string system; ///< the system message of --chat
  std::string save, restore;

  // How
  int64_t maxTokens = 128;
  int64_t context = 0, slots = 0, chunk = 512; ///< 0: what is needed
  bool ignoresStop = false;
  model::SamplerOptions sampling;
  bool isJson = false;

  // Speed tests
  std::vector<int64_t> timeDecode;  ///< contexts
  std::vector<int64_t> timePrefill; ///< lengths of prompts
};

/// The number of the GPU of --device=cuda[:i]; -1: the host. The error is a
/// sentence.
StatusOr<int> gpuOf(const Options &options);
/// The elements of --dtype.
model::Element elementOf(const Options &options);

/// Options that are out of range or contradict each other; the error is a
/// sentence.
Status checkOptions(const Options &options);

/// Parses `argv`; `exitCode` is set where help was printed (0) or a sentence
/// (2).
Options parseOptions(int argc, char **argv, std::optional<int> &exitCode);

} // namespace kdac::runtool

#endif // KDAC_TOOLS_KDAC_RUN_OPTIONS_H
