// Promises: variants compiled for this CPU through the whole pipeline, once per
// process, and run on cases.
// Does not: judge results.
#ifndef KDAC_TEST_NUMERICS_HOSTKERNEL_H
#define KDAC_TEST_NUMERICS_HOSTKERNEL_H

#include "kdac/Pipeline/Compile.h"
#include "kdac/Reference/Check.h"

#include <string>

namespace kdac::reference {

/// A compiled variant, or why it could not be compiled.
struct HostVariant {
  Variant variant; ///< resolved
  std::string error;
  HostProgram program;
  JitKernel kernel; ///< the recurrence's
  int64_t vTile = 0;

  /// Runs all launches of the case, which must be of this variant.
  std::optional<std::string> run(Case &c) const;
  /// Runs program instances [begin, end) of the recurrence in poisoned scratch
  /// memory.
  std::optional<std::string> runRange(void **argv, int64_t begin,
                                      int64_t end) const;
  /// Runs the whole case, of each launch one instance at a time and the last
  /// one first.
  std::optional<std::string> runBackwards(Case &c) const;
  Runner runner() const;

private:
  /// Gives the case its workspace, then each launch with its grid to
  /// `launchOne`, until one fails.
  std::optional<std::string> runLaunches(
      Case &c,
      llvm::function_ref<bool(const JitKernel &, int64_t)> launchOne) const;
};

/// Compiles `variant` for the host, or returns the earlier result.
const HostVariant &hostVariant(Variant variant,
                               const ScheduleOptions &options = {});

/// Compiles a dplr module whose function has the name and the arguments of
/// `variant`, but need not mean the same.
HostVariant compileModule(mlir::ModuleOp module, Variant variant);

/// A resolved variant of the host; a test failure if it cannot exist.
Variant resolved(Variant variant);

/// Compiles, runs and judges; every complaint is a test failure that names the
/// case. Returns the result for further expectations.
CheckResult expectCorrect(CaseSpec spec);
CheckResult expectCorrect(Case &c);

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_HOSTKERNEL_H
