// Promises: the errors of what a timed call left, at heads, rows or entries
// that the oracle has time for. Does not: launch or time.
#ifndef KDAC_LIB_SELFTEST_BENCHORACLE_H
#define KDAC_LIB_SELFTEST_BENCHORACLE_H

#include "BenchCall.h"
#include "Runner.h"

namespace kdac::selftest {

class BenchOracle {
public:
  /// For calls that `patterns` filled. Both are kept by reference.
  BenchOracle(const Session &session, Patterns &patterns)
      : session(session), patterns(patterns),
        recipe(*reference::findRecipe(session.settings.inputs)) {}

  /// Fills in the entry's errors; fails if one is above its bound.
  Status check(const Variant &variant, const BenchShape &shape,
               const BenchCall &call, Entry &entry);

private:
  /// Forms chunk and step; the others follow.
  Status checkRecurrence(const Variant &v, const BenchShape &shape,
                         const BenchCall &call, Entry &entry);
  Status checkRows(const Variant &v, const BenchShape &shape,
                   const BenchCall &call, Entry &entry);
  Status checkAttention(const Variant &v, const BenchShape &shape,
                        const BenchCall &call, Entry &entry);
  Status checkPrompt(const Variant &v, const BenchShape &shape,
                     const BenchCall &call, Entry &entry);
  Status checkMatmul(const Variant &v, const BenchShape &shape,
                     const BenchCall &call, Entry &entry);
  /// Notes the error of `out`, the only result of a call without a state.
  Status judgeOut(const Variant &v, const reference::Comparison &error,
                  int64_t width, Entry &entry);
  /// What a recurrence should give, the last one kept.
  const reference::Results &expected(const Variant &variant,
                                     const BenchShape &shape);

  const Session &session;
  Patterns &patterns;
  const reference::Recipe &recipe; ///< of the inputs
  std::map<std::string, reference::Results> known;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHORACLE_H
