// Gate logits of 32 bits a channel, for which an image has no room: prepare
// reads them from global memory, and leaves the log-decays that it makes of
// them where logits of 16 bits would be, as the pairs that tensor cores sum.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Loads of a lane on the way at once, four columns each.
static constexpr int64_t kLoads = 8;

/// Of this warp's 16 rows.
void ChunkPreparer::storeDecays() {
  tile::LoadOp load = parts.wideLogits;
  Value input = parts.decay.getInput();
  if (!isBounded())
    tokenFactors(input);
  int64_t lanes = roles.keyDim() / 4, rowsAtOnce = 32 / lanes;
  Value lane = b.rem(at.lane, lanes), rowOfLane = b.div(at.lane, lanes);
  tile::PlaceAttr place = at.place(load.getResult());
  Value panel = b.mul(b.div(lane, 16), place.getPitch());
  Value unit = b.div(b.rem(lane, 16), 2);
  Value within = b.add(b.add(buffer, panel), b.mul(b.rem(lane, 2), 8));
  auto rows = [&](Value first, Values &) {
    SmallVector<Group> groups(kLoads);
    for (auto [i, group] : llvm::enumerate(groups)) {
      group.row = {b.add(b.add(b.mul(block, 16), first), rowOfLane),
                   static_cast<int64_t>(i) * rowsAtOnce};
      group.col = {b.mul(lane, 4), 0};
      group.width = 4;
      at.remember(load.getResult(), group,
                  at.loadIf(load, group, /*invariant=*/true));
    }
    for (const Group &group : groups) {
      Values scaled = scaledDecays(input, group);
      Value row = b.at(group.row);
      Value swizzled = b.shiftLeft(b.bitXor(unit, b.rem(row, 8)), 4);
      Value to = b.add(b.add(within, swizzled), b.mul(row, 128));
      b.store(scaled, roles.pointer(to, place.getOffset()), f16(), 8);
    }
  };
  Values none;
  roles.loop(b.i32(0), b.i32(tile::kRoleBlock), kLoads * rowsAtOnce, none,
             rows);
  b.warpSync();
  b.memoryFence();
}

/// Asks for this warp's rows of chunk `number`, a lane for each.
void ChunkPreparer::askForLogits(Value number) {
  tile::LoadOp load = parts.wideLogits;
  IRMapping present = at.scalars;
  roles.enterChunk(number, load.getOperation());
  Group group;
  group.row = {b.add(b.mul(block, 16), at.lane), 0};
  group.col = {b.i32(0), 0};
  Value isThere = at.validity(at.scalars.lookup(load.getRef()), load.getValid(),
                              load.getResult().getType().getShape(), group);
  isThere = arith::AndIOp::create(b, isThere, b.less(at.lane, b.i32(16)));
  roles.branch(isThere, [&] {
    b.prefetch(at.globalPointer(load, group), 4 * roles.keyDim());
  });
  at.scalars = present;
}

} // namespace kdac
