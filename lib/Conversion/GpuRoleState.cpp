// The initial state's way to the chain where images are prepared: behind the
// first rows, so that these do not wait for it, to bytes of the rings that are
// filled last (tile.place says which), and from there into accumulators. What
// was zero in images above the diagonal is so again then.
//
//   who             when                          does
//   transfer warps  rows of the first images and  copy; then wait for `left`
//                   no v are on their way
//   chain warps     `loaded`                      read; zero; `left`
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

bool RoleLowering::stagesState() {
  return at.place(state.getResult()).getHome() == tile::Home::Staged;
}

/// Behind all other mbarriers.
Value RoleLowering::loadedState() {
  int64_t count = rowStages() + imageStages() + 2 * valueStages();
  if (shares())
    count += imageStages();
  return barrierAt(count, b.i32(0), 1);
}

Value RoleLowering::leftState() { return b.add(loadedState(), 8); }

int64_t RoleLowering::stateLines() {
  auto type = cast<RankedTensorType>(state.getResult().getType());
  return type.getDimSize(state.getTransposed() ? 1 : 0);
}

Value RoleLowering::stateAt(const Group &group, int64_t element) {
  tile::PlaceAttr place = at.place(state.getResult());
  Coord line = group.row.plus(element), inside = group.col;
  if (state.getTransposed())
    std::tie(line, inside) = std::pair(group.col, group.row.plus(element));
  Value offset =
      b.add(b.mul(line.base, place.getPitch()), b.mul(inside.base, 4));
  return pointer(offset, place.getOffset() + line.offset * place.getPitch() +
                             inside.offset * 4);
}

/// By the transfer warps, 16 bytes a thread and turn; returns when the bytes
/// they went to are free again.
void RoleLowering::startState() {
  constexpr int64_t threads = 128;
  auto type = cast<RankedTensorType>(state.getResult().getType());
  int64_t units = type.getNumElements() / stateLines() / 4;
  bool transposed = state.getTransposed();
  // Hidden, or ptxas compares before the loop and keeps that through it.
  Value ref = at.scalars.lookup(state.getRef());
  branch(b.isPresent(ref, /*isHidden=*/true), [&] {
    Value unit = b.rem(threadInGroup, units);
    Value first = b.div(threadInGroup, units);
    for (int64_t line = 0; line < stateLines(); line += threads / units) {
      Group piece;
      piece.row = {b.mul(unit, 4), 0};
      piece.col = {first, line};
      if (!transposed)
        std::swap(piece.row, piece.col);
      NVVM::CpAsyncOp::create(b, stateAt(piece), at.globalPointer(state, piece),
                              16, NVVM::LoadCacheModifierKind::CG, Value());
    }
    b.arriveAfterCopies(loadedState());
    b.waitBarrier(leftState(), b.i32(0));
    if (shares()) // the other block sends images there
      b.proxyFence();
  });
}

/// By a chain warp that has read what it needs.
void RoleLowering::releaseState() {
  tile::PlaceAttr image = at.place(parts.queries);
  int64_t first = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image")[0];
  int64_t bytes = at.place(state.getResult()).getOffset() - first;
  b.namedBarrier(b.i32(tile::preparePairs(at.schedule) + 1),
                 128 * chainWarpgroups());
  zeroAboveDiagonal(bytes / image.getStride());
  b.proxyFence();
  b.warpSync();
  branch(b.equal(at.lane, b.i32(0)), [&] { b.arrive(leftState()); });
}

} // namespace kdac
