// Promises: where things are in the scratch of a pair of preparing warps, for
// tile-place, which makes room, and tile-to-nvvm, which fills it.
// Does not: say how they are used (lib/Conversion/GpuPrepare.cpp).
#ifndef KDAC_DIALECT_PREPARESCRATCH_H
#define KDAC_DIALECT_PREPARESCRATCH_H

#include "kdac/Dialect/Tile.h"

namespace kdac::tile {

/// Offsets in bytes, for K channels and a chunk of blocks of kRoleBlock rows.
/// What is needed after the slices waits there where `leaf` rows share no
/// anchor, which takes the registers that else hold it.
struct PrepareScratch {
  /// A diagonal block in f32, and 16 bytes so that the next starts in another
  /// bank.
  static constexpr int64_t diagonalBytes = kRoleBlock * kRoleBlock * 4 + 16;

  PrepareScratch(int64_t keyDim, int64_t chunk, int64_t leaf) {
    int64_t blocks = chunk / kRoleBlock;
    up = totals + blocks * keyDim * 4;
    down = up + keyDim * 2;
    strengths = down + keyDim * 2;
    diagonal = strengths + chunk * 4;
    inverse = diagonal + blocks * diagonalBytes;
    waiting = inverse + blocks * kRoleBlock * kRoleBlock * 2;
    waitingNumber = waiting + chunk * 4;
    bytes = leaf < kRoleBlock ? waitingNumber + blocks * 4 : waiting;
  }

  int64_t totals = 0;    ///< log-decay of each block, f32 [blocks, K]
  int64_t up, down;      ///< 16-bit factors of the second pass, [K] each
  int64_t strengths;     ///< f32 [chunk]
  int64_t diagonal;      ///< of the system, f32
  int64_t inverse;       ///< of those, transposed, 16-bit
  int64_t waiting;       ///< strengths of this chunk, as loaded, f32 [chunk]
  int64_t waitingNumber; ///< the chunk's number, i32 [blocks]
  int64_t bytes;         ///< of it all
};

} // namespace kdac::tile

#endif // KDAC_DIALECT_PREPARESCRATCH_H
