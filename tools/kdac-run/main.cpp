// kdac-run: whole models on this machine.
#include "Commands.h"

#include <cstdio>

namespace kdac::runtool {

int refuse(const std::string &sentence) {
  std::fprintf(stderr, "kdac-run: %s\n", sentence.c_str());
  return 2;
}

int fail(const Status &status) {
  refuse(status.message());
  return 1;
}

} // namespace kdac::runtool

using namespace kdac::runtool;

int main(int argc, char **argv) {
  std::optional<int> exitCode;
  Options options = parseOptions(argc, argv, exitCode);
  if (exitCode)
    return *exitCode;
  if (options.isPlan)
    return runPlan(options);
  if (kdac::StatusOr<int> gpu = gpuOf(options); !gpu.ok())
    return refuse(gpu.status().message());
  if (options.model.empty() && options.config.empty())
    return refuse("a model folder is required; `kdac-run --help` shows what "
                  "works");
  if (!options.timeDecode.empty() || !options.timePrefill.empty())
    return options.hasRandomWeights
               ? runTimes(options)
               : refuse("--time-decode and --time-prefill need "
                        "--random-weights");
  return options.isChat ? runChat(options) : runGenerate(options);
}
