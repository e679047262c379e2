// Panels of shared memory: a tile's columns by 64, swizzled (tile.place).
#include "GpuPanels.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool PanelLowering::isInPanels(Value operand) const {
  tile::PlaceAttr place = at.place(operand);
  return operand.getDefiningOp<tile::LoadOp>() && place &&
         place.getHome() == tile::Home::Panels &&
         tileType(operand).getElementType().isBF16() &&
         tileType(operand).getDimSize(1) % 64 == 0;
}

bool PanelLowering::canMultiply(tile::DotOp dot) const {
  constexpr int64_t widest = 256;
  auto shape = tileType(dot.getResult()).getShape();
  return at.warps % 4 == 0 && shape[0] == 16 * at.warps && shape[1] % 64 == 0 &&
         shape[1] <= widest && !dot.getTransA() && isInPanels(dot.getB());
}

Value PanelLowering::bufferOf(Value tile, Value number) {
  tile::PlaceAttr place = at.place(tile);
  if (place.getStages() == 1)
    return {};
  return b.mul(b.rem(number, place.getStages()), place.getStride());
}

Layout PanelLowering::copyLayout(tile::LoadOp load) {
  return at.linear(load.getResult().getType().getShape(), 8);
}

void PanelLowering::copy(tile::LoadOp load, const Layout &layout, Value buffer,
                         bool fetchesNext) {
  auto type = load.getResult().getType();
  tile::PlaceAttr place = at.place(load.getResult());
  for (const Group &group : layout.groups) {
    Value unit = b.div(group.col.base, 8);
    Value swizzled = b.bitXor(b.rem(unit, 8), b.rem(group.row.base, 8));
    Value offset = b.add(b.mul(group.row.base, 128), b.shiftLeft(swizzled, 4));
    if (type.getDimSize(1) > 64)
      offset = b.add(offset, b.mul(b.div(unit, 8), place.getPitch()));
    if (buffer)
      offset = b.add(offset, buffer);
    Value valid = at.validity(at.scalars.lookup(load.getRef()), load.getValid(),
                              type.getShape(), group);
    Value to = b.bytes(at.sharedBase, offset,
                       place.getOffset() + group.row.offset * 128);
    Value from = at.globalPointer(load, group);
    Value count = arith::SelectOp::create(b, valid, b.i32(16), b.i32(0));
    if (fetchesNext)
      b.copyFetching(to, from, count);
    else
      NVVM::CpAsyncOp::create(b, to, from, 16, NVVM::LoadCacheModifierKind::CG,
                              count);
  }
}

void PanelLowering::meet(int64_t groupsLeft) {
  NVVM::CpAsyncWaitGroupOp::create(b, groupsLeft);
  b.proxyFence();
  b.barrier();
}

Value PanelLowering::descriptor(Value operand, Value number, Value rows,
                                int64_t leading) {
  Value offset = bufferOf(operand, number);
  if (rows)
    offset = offset ? b.add(offset, rows) : rows;
  Value pointer = b.bytes(at.sharedBase, offset, at.place(operand).getOffset());
  return b.matrixDescriptor(b.address(pointer), leading, 1024);
}

void PanelLowering::startProduct(MutableArrayRef<Value> sums, tile::DotOp dot,
                                 Value number, bool fresh) {
  Value own = b.mul(b.div(at.thread, 128), 64 * 128);
  Value left = descriptor(dot.getA(), number, own, 16);
  Value right = descriptor(dot.getB(), number, {}, 16);
  int64_t depth = tileType(dot.getA()).getDimSize(1);
  for (int64_t k = 0; k < depth; k += 16) {
    auto step = [&](Value operand) { // 16 columns further
      return k / 64 * at.place(operand).getPitch() + k % 64 * 2;
    };
    b.warpgroupProduct(sums, b.add64(left, step(dot.getA()) / 16),
                       b.add64(right, step(dot.getB()) / 16), fresh && k == 0);
  }
}

Value PanelLowering::asIndex(Value number) {
  return arith::IndexCastOp::create(b, b.getIndexType(), number);
}

PanelLowering::Values PanelLowering::elements(Value tile) {
  return at.distribute(
      tile, [&](const Group &group) { return at.evaluate(tile, group); });
}

} // namespace kdac
