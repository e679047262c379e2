// Promises: whether a log's commits are token-by-token decoding, bit by bit.
// Does not: compare with the oracle.
#ifndef KDAC_LIB_SELFTEST_LOGBITS_H
#define KDAC_LIB_SELFTEST_LOGBITS_H

#include "Executor.h"

#include <string>

namespace kdac::selftest {

/// Commits prefixes of four tokens, and the same tokens one by one; says what
/// differs in a state of a variant with a log and f32 pools, nothing if all is
/// well.
StatusOr<std::string>
differenceOfCommits(Kernel &kernel, const Variant &variant, uint64_t seed);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_LOGBITS_H
