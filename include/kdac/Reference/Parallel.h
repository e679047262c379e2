// Promises: independent work items on all cores, finished on return.
// Does not: order them, or keep threads between calls.
#ifndef KDAC_REFERENCE_PARALLEL_H
#define KDAC_REFERENCE_PARALLEL_H

#include <cstdint>
#include <functional>

namespace kdac::reference {

/// Calls body(i) for every i in [0, count), at most `threads` at a time
/// (0: one per core). Items must not touch each other's results.
void parallelFor(int64_t count, const std::function<void(int64_t)> &body,
                 int threads = 0);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_PARALLEL_H
