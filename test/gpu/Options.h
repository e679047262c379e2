// Promises: the command line of kdac-gpu-test as plain data.
// Does not: open files or devices.
#ifndef KDAC_TEST_GPU_OPTIONS_H
#define KDAC_TEST_GPU_OPTIONS_H

#include "kdac/SelfTest/SelfTest.h"

#include <string>
#include <vector>

namespace kdac::gputest {

struct Options : selftest::Settings {
  std::vector<std::string> packs;
};

/// Parses `argv`. On an error, or after --help, prints what CLI11 says and
/// returns false with the exit code in `code`.
bool parseOptions(int argc, char **argv, Options &options, int &code);

} // namespace kdac::gputest

#endif // KDAC_TEST_GPU_OPTIONS_H
