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

static int run(const Options &options) {
  if (options.isPlan)
    return runPlan(options);
  if (kdac::StatusOr<int> gpu = gpuOf(options); !gpu.ok())
    return refuse(gpu.status().message());
  if (options.model.empty() && options.config.empty())
    return refuse("a model folder is required; `kdac-run --help` shows what "
                  "works");
  if (kdac::Status s = checkModel(options); !s.ok())
    return refuse(s.message());
  if (!options.timeDecode.empty() || !options.timePrefill.empty())
    return runTimes(options);
  return options.isChat ? runChat(options) : runGenerate(options);
}

int main(int argc, char **argv) {
  std::optional<int> exitCode;
  Options options = parseOptions(argc, argv, exitCode);
  if (!exitCode) {
    kdac::Status status = checkOptions(options);
    exitCode = status.ok() ? run(options) : refuse(status.message());
  }
  // What a full disk swallowed is not an answer.
  if (std::fflush(stdout) == 0 && !std::ferror(stdout))
    return *exitCode;
  refuse("standard output cannot be written, or not all of it");
  return 1;
}
