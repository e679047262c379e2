// The program that follows, which some multiprocessor begins when it is done
// with one: its initial state and first rows are asked for in the L2 while the
// memory is half idle, since all multiprocessors go on to their next program at
// about the same time. Its scalars are a copy that the second warpgroup makes
// in the prologue.
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

/// Chunks before its end that a program does so.
static constexpr int64_t kAhead = 5;

/// Blocks begin in the order of their numbers, one when another ends. This is
/// only a guess: what nobody asked for comes later.
Value RoleLowering::follower() {
  Value next = b.add(at.block, b.multiprocessors());
  Value grid = NVVM::GridDimXOp::create(b, b.getI32Type());
  return select(b.less(next, grid), next, at.block);
}

/// A row of the first chunks each.
void RoleLowering::askForRows(tile::LoadOp load) {
  RankedTensorType type = load.getResult().getType();
  enterChunk(b.div(threadInGroup, chunkRows()), load.getOperation());
  Group row;
  row.row = {b.rem(threadInGroup, chunkRows()), 0};
  row.col = {b.i32(0), 0};
  row.width = type.getDimSize(1);
  Value valid = at.validity(at.scalars.lookup(load.getRef()), load.getValid(),
                            type.getShape(), row);
  branch(valid, [&] {
    b.prefetchLines(at.globalPointer(load, row),
                    type.getDimSize(1) * bytesOf(type.getElementType()));
  });
  at.scalars = roleScalars;
}

/// Of the initial state, one each.
void RoleLowering::askForState() {
  auto type = state.getResult().getType();
  Value isLine =
      arith::AndIOp::create(b, b.isPresent(at.scalars.lookup(state.getRef())),
                            b.less(threadInGroup, b.i32(stateLines())));
  branch(isLine, [&] {
    Group line;
    (state.getTransposed() ? line.col : line.row) = {threadInGroup, 0};
    b.prefetchLines(at.globalPointer(state, line),
                    type.getNumElements() / stateLines() * 4);
  });
}

/// By the transfer warps, in the turn of chunk `number`.
void RoleLowering::askForFollower(Value number) {
  Value isDue = b.equal(number, b.add(chunks, -kAhead));
  branch(isDue, [&] {
    branch(b.less(at.block, follower()), [&] {
      readCopy = [&] { return b.i32(1); };
      SmallVector<tile::LoadOp> loads(imageRows);
      loads.push_back(values);
      if (parts.wideLogits)
        loads.push_back(parts.wideLogits);
      for (tile::LoadOp load : loads)
        anew(/*apart=*/true, [&] { askForRows(load); });
      if (stagesState())
        anew(/*apart=*/true, [&] { askForState(); });
      readCopy = nullptr;
    });
  });
}

} // namespace kdac
