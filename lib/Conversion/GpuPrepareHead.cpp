// What prepare has of a head, where a program's chunks are of different ones:
// numbers such as the gate's rate, and the gate's bias for every channel. They
// are loaded a chunk ahead, and the bias then lies in shared memory, of each
// pair in a place of its own: both of its warps write the same there, when both
// have left the chunk before.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Points to the pair's vector.
void ChunkPreparer::placeHead() {
  if (parts.headVector)
    at.slots[parts.headVector.getResult()] = b.mul(pair, roles.keyDim() * 4);
}

/// The channels of a lane.
static Group channelsOf(GpuEmitter &b, Value lane, int64_t keyDim) {
  Group group;
  group.width = keyDim / 32;
  group.col = {b.mul(lane, group.width), 0};
  return group;
}

/// Appends what is to be known of the head of chunk `number`.
void ChunkPreparer::loadHead(Value number, Values &loaded) {
  SmallVector<Operation *> loads(parts.headScalars.begin(),
                                 parts.headScalars.end());
  if (parts.headVector)
    loads.push_back(parts.headVector);
  if (loads.empty())
    return;
  roles.enterChunk(number, loads);
  for (tile::LoadScalarOp load : parts.headScalars) {
    at.lowerLoadScalar(load);
    loaded.push_back(at.scalars.lookup(load.getResult()));
  }
  if (parts.headVector)
    loaded.append(at.loadGlobal(parts.headVector,
                                channelsOf(b, at.lane, roles.keyDim())));
}

/// `loaded` is of the chunk that begins.
void ChunkPreparer::enterHead(ArrayRef<Value> loaded) {
  for (auto [load, number] : llvm::zip(parts.headScalars, loaded))
    at.scalars.map(load.getResult(), number);
  for (Operation *number : parts.headNumbers)
    at.lowerScalar(number);
  if (!parts.headVector)
    return;
  Value vector = parts.headVector.getResult();
  Values elements(loaded.drop_front(parts.headScalars.size()));
  at.storeShared(vector, channelsOf(b, at.lane, roles.keyDim()), elements);
  b.warpSync();
  b.memoryFence();
}

} // namespace kdac
