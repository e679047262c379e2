// Promises: a short list of configurations in which every possible pair of
// levels of two factors occurs.
// Does not: know what the factors mean.
#ifndef KDAC_TEST_NUMERICS_PAIRCOVER_H
#define KDAC_TEST_NUMERICS_PAIRCOVER_H

#include <cstdint>
#include <functional>
#include <vector>

namespace kdac::reference {

/// One level index per factor.
using Levels = std::vector<int>;

/// Covers all pairs of levels. `normalise` turns any row into one that exists,
/// by changing levels that exclude each other; pairs that no normalised row has
/// are not asked for. Deterministic.
std::vector<Levels> coverPairs(const std::vector<int> &levelCounts,
                               const std::function<void(Levels &)> &normalise,
                               uint64_t seed = 1);

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_PAIRCOVER_H
