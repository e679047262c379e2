// Promises: the command line of kdac-gpu-test as plain data.
// Does not: open files or devices.
#ifndef KDAC_TEST_GPU_OPTIONS_H
#define KDAC_TEST_GPU_OPTIONS_H

#include <cstdint>
#include <string>
#include <vector>

namespace kdac::gputest {

struct Options {
  std::vector<std::string> packs;
  bool host = false; ///< run host images instead of a GPU's
  int device = 0;
  std::string driver = "libcuda.so.1"; ///< another library, for tests
  std::string ledger;                  ///< file to append lines to; "": none
  std::string filter;                  ///< regular expression on variant names
  std::string benchFilter;             ///< the same, for timing only
  std::string bench;                   ///< shapes, see BenchShape; "": none
  bool cases = true;                   ///< run the correctness cases
  double timeLimit = 540;              ///< seconds for everything
  double stallLimit = 60;              ///< seconds without progress
  bool inProcess = false;              ///< no worker process, for debuggers
  int threads = 0;                     ///< of the oracle and the host; 0: all
  uint64_t seed = 0;                   ///< 0: from the clock
  std::string commit;                  ///< what the ledger calls the source
};

/// Parses `argv`. On an error, or after --help, prints what CLI11 says and
/// returns false with the exit code in `code`.
bool parseOptions(int argc, char **argv, Options &options, int &code);

} // namespace kdac::gputest

#endif // KDAC_TEST_GPU_OPTIONS_H
