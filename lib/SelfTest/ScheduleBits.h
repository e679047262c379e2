// Promises: whether schedules of one variant give the same results, bit by bit.
// Does not: compare with the oracle.
#ifndef KDAC_LIB_SELFTEST_SCHEDULEBITS_H
#define KDAC_LIB_SELFTEST_SCHEDULEBITS_H

#include "Executor.h"

#include <string>
#include <vector>

namespace kdac::selftest {

/// Schedules of which the sizes of a call and the GPU pick one only share out
/// the same arithmetic, but for those that use the workspace, which may cut
/// sequences into segments. Runs each of the others on a case of its own; says
/// which output differs, nothing if all is well.
StatusOr<std::string>
differenceOfSchedules(Kernel &kernel, const PackVariant &variant,
                      const std::vector<std::string> &schedules, uint64_t seed);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_SCHEDULEBITS_H
