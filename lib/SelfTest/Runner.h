// Promises: every correctness case of one variant, judged by the tolerance
// table, with its ledger lines. Does not: time benchmark shapes (Bench.h).
#ifndef KDAC_LIB_SELFTEST_RUNNER_H
#define KDAC_LIB_SELFTEST_RUNNER_H

#include "Executor.h"
#include "Supervisor.h"
#include "kdac/Reference/Check.h"
#include "kdac/Runtime/Trust.h"
#include "kdac/SelfTest/Plan.h"

#include <map>

namespace kdac::selftest {

/// What runners share: the run's settings and the oracle's results.
struct Session {
  Settings settings;
  Machine machine;
  uint64_t seed = 0;
  Heartbeat beat;
  FILE *log = stdout;
};

/// The variant without what the oracle cannot see: form, target, schedule,
/// precision and offset type. Equal keys have equal results for equal cases.
Variant oracleVariant(Variant variant);

class CaseRunner {
public:
  CaseRunner(const Session &session, Executor &executor)
      : session(session), executor(executor) {}

  /// Runs all cases, prints one line (and one a failure), and writes the
  /// ledger lines if every case passed.
  Outcome run(const PackReader &pack, const PackVariant &variant);

  /// Times the variant on every shape of its form as one big case each: where
  /// memory is the host's, BenchRunner's device tensors are of no use.
  Outcome bench(const PackReader &pack, const PackVariant &variant,
                const std::vector<BenchShape> &shapes);

private:
  struct Judged {
    reference::CheckResult result;
    Entry entry;
    bool deviceLost = false;
  };
  Judged runCase(Kernel &kernel, const reference::CaseSpec &spec);
  const reference::Results &oracle(const reference::Case &c);
  Status updateReceipt(const Kernel &kernel, const PackVariant &variant,
                       bool passed);

  const Session &session;
  Executor &executor;
  /// Results by case; variants of one shape follow one another in a pack, so
  /// few need to be kept.
  std::map<std::string, reference::Results> known;
};

/// The digest by which the ledger knows a variant's code.
std::string codeDigest(const PackReader &pack, const PackVariant &variant);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_RUNNER_H
