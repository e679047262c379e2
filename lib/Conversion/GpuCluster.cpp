// Images shared by the blocks of a cluster: the neighbouring slices of V of one
// head. Chunk n is prepared by block n mod 2 alone, in its own ring, and copied
// from there to the same place of the other block's. Either block's transfer
// warps ask for an image where they would load its rows: once asked, the place
// is free there, and the image that was in it has arrived, so that the block
// that prepares may fill its own place again as well.
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

/// Slices of a head follow each other.
Value RoleLowering::rank() { return b.rem(at.block, clusterBlocks()); }

/// True if this block prepares chunk `number`. Places in the ring are the same
/// block's in every turn, because their number is a multiple of the blocks'.
Value RoleLowering::isOwn(Value number) {
  return b.equal(b.rem(number, clusterBlocks()), rank());
}

/// The mbarrier that the others arrive at when they ask for chunk `number`.
Value RoleLowering::awaitedImage(Value number) {
  return barrierAt(rowStages() + imageStages() + 2 * valueStages(), number,
                   imageStages());
}

void RoleLowering::awaitImage(Value number) {
  b.waitBarrier(awaitedImage(number), parityOf(number, imageStages()),
                /*cluster=*/true);
}

void RoleLowering::requestImage(Value number) {
  branch(b.equal(threadInGroup, b.i32(0)), [&] {
    b.arriveExpecting(preparedImage(number), imageSize());
    b.arriveInCluster(
        b.inBlock(awaitedImage(number), b.rem(number, clusterBlocks())));
  });
}

/// By one thread that takes part in preparing it.
void RoleLowering::sendImage(Value number) {
  b.waitBarrier(preparedImage(number), parityOf(number, imageStages()));
  Value from = imageBuffer(number), barrier = preparedImage(number);
  for (int64_t i = 1; i < clusterBlocks(); ++i) {
    Value other = b.rem(b.add(rank(), i), clusterBlocks());
    b.bulkSend(b.inBlock(from, other), from, imageSize(),
               b.inBlock(barrier, other));
  }
}

} // namespace kdac
