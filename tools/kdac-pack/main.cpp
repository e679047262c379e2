// kdac-pack: what a machine without a compiler can do with a pack.
#include "Commands.h"

using namespace kdac::packtool;

int main(int argc, char **argv) {
  std::optional<int> exitCode;
  Options options = parseOptions(argc, argv, exitCode);
  if (exitCode)
    return *exitCode;
  switch (options.command) {
  case Command::List:
    return runList(options);
  case Command::Explain:
    return runExplain(options);
  case Command::Verify:
    return runVerify(options);
  case Command::Check:
  case Command::Bench:
    return runCheckOrBench(options);
  case Command::Embed:
    return runEmbed(options);
  }
  return 2;
}
