// Promises: the convolution caches of cases: where their entries lie, what the
// oracle makes of them, and whether a run kept the right inputs, bit by bit.
// Does not: run anything.
#ifndef KDAC_REFERENCE_CACHE_H
#define KDAC_REFERENCE_CACHE_H

#include "kdac/Reference/Case.h"

#include <string>
#include <vector>

namespace kdac::reference {

/// True for q_cache, k_cache and v_cache.
bool isCache(std::string_view name);

/// Flat position inside a slot of entry `entry` (0: oldest in use or not) of a
/// channel of all heads, for a cache of `channels` channels.
int64_t cacheIndex(const Variant &variant, int64_t channels, int64_t channel,
                   int64_t entry);

/// Puts the convolutions in front of q, k and v, and the norm behind the
/// output.
void addLayer(const Case &c, Operands &operands);

/// What is wrong with the caches after a run: wrong entries in slots that
/// sequences own, or changes in others.
std::vector<std::string> cacheFailures(const Case &c);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_CACHE_H
