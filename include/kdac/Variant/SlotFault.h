// Promises: the status word of a checked call on pools, as kernels write it,
// the oracle expects it and the runtime reads it. Does not: check anything.
#ifndef KDAC_VARIANT_SLOTFAULT_H
#define KDAC_VARIANT_SLOTFAULT_H

#include <cstdint>

namespace kdac {

/// What is wrong with an entry of slots, sources or snapshots (tile.check_slots
/// has the meaning). The word is `slotFaultKinds * entry + fault` of the first
/// bad entry, or -1.
enum SlotFault : int64_t {
  SlotRange,
  SlotTwice,
  SourceRange,
  SourceWritten,
  SnapshotRange,
  SnapshotTaken
};
constexpr int64_t slotFaultKinds = 8;

} // namespace kdac

#endif // KDAC_VARIANT_SLOTFAULT_H
