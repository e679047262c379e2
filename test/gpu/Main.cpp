// kdac-gpu-test: runs packs on a machine that has neither LLVM nor a compiler.
#include "Options.h"

#include <cstdio>

using namespace kdac;

namespace {

int usage(const std::string &message) {
  std::fprintf(stderr, "kdac-gpu-test: %s\n", message.c_str());
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  gputest::Options options;
  int code = 0;
  if (!gputest::parseOptions(argc, argv, options, code))
    return code;
  std::vector<PackReader> packs;
  for (const std::string &path : options.packs) {
    StatusOr<PackReader> pack = PackReader::open(path);
    if (!pack.ok())
      return usage(pack.status().message());
    packs.push_back(std::move(*pack));
  }
  StatusOr<std::vector<selftest::Result>> results =
      selftest::run(packs, options);
  if (!results.ok())
    return usage(results.status().message());
  selftest::report(*results, options);
  selftest::Counts counts = selftest::countsOf(*results);
  return counts.failed == 0 && counts.notRun == 0 ? 0 : 1;
}
