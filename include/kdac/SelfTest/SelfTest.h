// Promises: packs run against the f64 oracle on this machine, each variant in a
// worker process, so that one that crashes or hangs fails alone; timings and
// ledger lines on request. Does not: parse command lines, or decide what is
// close enough (kdac/Reference/Tolerance.h).
#ifndef KDAC_SELFTEST_SELFTEST_H
#define KDAC_SELFTEST_SELFTEST_H

#include "kdac/Pack/PackReader.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace kdac::selftest {

/// What to run, and how.
struct Settings {
  bool host = false; ///< run host images instead of a GPU's
  int device = 0;
  std::string driver = "libcuda.so.1"; ///< another library, for tests
  std::string ledger;                  ///< file to append lines to; "": none
  std::string receipts;    ///< file of receipts to keep up to date; "": none
  std::string filter;      ///< regular expression on variant names
  std::string benchFilter; ///< the same, for timing only
  std::string bench;       ///< shapes, see BenchShape; "": none
  std::string inputs = "random"; ///< what timed calls get: a reference recipe
  /// Timed launches may begin before those ahead of them have ended.
  bool overlap = false;
  bool cases = true; ///< run the correctness cases
  /// The GPU is emulated: every case runs once, without being timed, none has
  /// thousands of sequences, and nothing is recorded about a GPU.
  bool emulated = false;
  double timeLimit = 540; ///< seconds for everything
  double stallLimit = 60; ///< seconds without progress
  bool inProcess = false; ///< no worker process, for debuggers
  int threads = 0;        ///< of the oracle and the host; 0: all
  uint64_t seed = 0;      ///< 0: from the clock
  std::string commit;     ///< what the ledger calls the source
  FILE *log = stdout;     ///< a line for every variant, one for every failure
};

enum class Outcome : uint8_t {
  Pending,
  Passed,
  Failed,
  Lost,    ///< failed, and the process must be replaced (a GPU error sticks)
  Crashed, ///< the process died
  Stalled, ///< no heartbeat for too long
  NotRun,  ///< the time was up, or the device cannot run it
};

/// "passed", "failed", "crashed", "made no progress and was ended", ...
std::string_view spell(Outcome outcome);

/// What became of one variant.
struct Result {
  const PackVariant *variant = nullptr;
  bool isBench = false;
  Outcome outcome = Outcome::Pending;
};

/// How many of each, for closing lines and exit codes.
struct Counts {
  size_t passed = 0, failed = 0, notRun = 0;
};
Counts countsOf(const std::vector<Result> &results);

/// Runs the selected variants of `packs`: all correctness cases first, then
/// timings. Errors: a shape or filter that does not parse, nothing selected, a
/// device that cannot be opened.
StatusOr<std::vector<Result>> run(const std::vector<PackReader> &packs,
                                  const Settings &settings);

/// Lines for what did not pass and the closing line, to `settings.log`.
void report(const std::vector<Result> &results, const Settings &settings);

} // namespace kdac::selftest

#endif // KDAC_SELFTEST_SELFTEST_H
