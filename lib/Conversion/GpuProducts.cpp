// Products on mma.sync tensor cores.
#include "GpuLowering.h"

#include <numeric>

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

int64_t mmaDepth(Type element) { return isa<FloatTF32Type>(element) ? 8 : 16; }

/// The A fragment (16 rows from `row`, one step of k). 16-bit operands come by
/// ldmatrix: lanes 0-15 address the rows, lanes 16-31 the second half of k.
GpuLowering::Values GpuLowering::loadA(const Operand &a, Coord row, int64_t k) {
  auto address = [&](Coord m, Coord depth) {
    return a.transposed
               ? sharedAddress(a.offset, a.pitch, a.element, depth, m, a.slot)
               : sharedAddress(a.offset, a.pitch, a.element, m, depth, a.slot);
  };
  if (bytesOf(a.element) == 2) {
    // Stored [m][k]: matrices 0..3 are (m, k) = (0,0) (8,0) (0,8) (8,8).
    // Stored [k][m] the same blocks, transposed while loading.
    Value in8 = b.rem(lane, 8);
    Value second = b.mul(b.rem(b.div(lane, 8), 2), 8),
          fourth = b.mul(b.div(lane, 16), 8);
    Value m = a.transposed ? second : b.add(in8, second);
    Value depth = a.transposed ? b.add(in8, fourth) : fourth;
    Coord rowAt{row.base ? b.add(row.base, m) : m, row.offset};
    return b.ldmatrix(address(rowAt, {depth, k}), 4, a.transposed);
  }
  Value quad = b.div(lane, 4), inQuad = b.rem(lane, 4);
  Coord m{row.base ? b.add(row.base, quad) : quad, row.offset};
  Coord depth{inQuad, k};
  Values words;
  for (auto [dm, dk] :
       {std::pair(0, 0), std::pair(8, 0), std::pair(0, 4), std::pair(8, 4)})
    words.push_back(arith::BitcastOp::create(
        b, b.getI32Type(),
        b.load(address(m.plus(dm), depth.plus(dk)), a.element, 1, 4)[0]));
  return words;
}

/// B fragments (two registers each) of the two column tiles from `col`.
/// `transposed` means stored [n][k].
GpuLowering::Values GpuLowering::loadB(const Operand &o, Coord col, int64_t k) {
  auto address = [&](Coord n, Coord depth) {
    return o.transposed
               ? sharedAddress(o.offset, o.pitch, o.element, n, depth, o.slot)
               : sharedAddress(o.offset, o.pitch, o.element, depth, n, o.slot);
  };
  if (bytesOf(o.element) == 2) {
    // Matrices 0..3 are (k, n) = (0,0) (8,0) (0,8) (8,8).
    Value in8 = b.rem(lane, 8);
    Value second = b.mul(b.rem(b.div(lane, 8), 2), 8);
    Value fourth = b.mul(b.div(lane, 16), 8);
    Value n = o.transposed ? b.add(in8, fourth) : fourth;
    Value depth = o.transposed ? second : b.add(in8, second);
    Coord colAt{col.base ? b.add(col.base, n) : n, col.offset};
    return b.ldmatrix(address(colAt, {depth, k}), 4, !o.transposed);
  }
  Value quad = b.div(lane, 4), inQuad = b.rem(lane, 4);
  Coord n{col.base ? b.add(col.base, quad) : quad, col.offset};
  Values words;
  for (int64_t tile : {0, 8})
    for (int64_t dk : {0, 4})
      words.push_back(arith::BitcastOp::create(
          b, b.getI32Type(),
          b.load(address(n.plus(tile), {inQuad, k + dk}), o.element, 1, 4)[0]));
  return words;
}

void GpuLowering::lowerDot(tile::DotOp op) {
  auto operand = [&](Value value, bool transposed) {
    tile::PlaceAttr at = place(value);
    return Operand{at.getOffset(), at.getPitch(),
                   tileType(value).getElementType(), transposed,
                   slots.lookup(value)};
  };
  Operand left = operand(op.getA(), op.getTransA());
  Operand right = operand(op.getB(), op.getTransB());
  SmallVector<Range> reads = {range(op.getA()), range(op.getB())};
  if (op.getAcc())
    llvm::append_range(reads, rangesRead(op.getAcc()));
  access(reads, {});
  forget();

  auto shape = tileType(op.getResult()).getShape();
  int64_t inner = tileType(op.getA()).getDimSize(op.getTransA() ? 0 : 1);
  const Layout &layout = distributed(shape);
  Values sums(layout.slots);
  for (const Group &group : layout.groups) {
    Values start = op.getAcc() ? evaluate(op.getAcc(), group)
                               : Values(group.width, b.f32(0));
    llvm::copy(start, sums.begin() + group.slot);
  }
  // Four registers make a 16x8 accumulator; its first group has its corner.
  int64_t tiles = layout.slots / 4;
  auto corner = [&](int64_t tile) { return layout.groups[2 * tile]; };
  int64_t rowTiles = std::gcd(shape[0] / 16, warps);
  rowTiles = shape[0] / 16 / rowTiles;
  int64_t colTiles = tiles / rowTiles;
  // Fragment coordinates are per lane; products address whole tiles.
  Value quad = b.div(lane, 4), pair = b.mul(b.rem(lane, 4), 2);
  auto origin = [&](Coord coord, Value laneOffset) {
    return Coord{arith::SubIOp::create(b, coord.base, laneOffset),
                 coord.offset};
  };
  SmallVector<Coord> rows, cols;
  for (int64_t i = 0; i < rowTiles; ++i)
    rows.push_back(origin(corner(i * colTiles).row, quad));
  for (int64_t j = 0; j < colTiles; ++j)
    cols.push_back(origin(corner(j).col, pair));
  for (int64_t k = 0; k < inner; k += mmaDepth(left.element)) {
    SmallVector<Values> a;
    for (Coord row : rows)
      a.push_back(loadA(left, row, k));
    for (int64_t j = 0; j < colTiles; j += 2) {
      Values words = loadB(right, cols[j], k);
      for (int64_t side = 0; side < 2; ++side)
        for (int64_t i = 0; i < rowTiles; ++i) {
          int64_t first = 4 * (i * colTiles + j + side);
          b.mma(MutableArrayRef<Value>(sums).slice(first, 4), a[i],
                ArrayRef<Value>(words).slice(2 * side, 2), left.element);
        }
    }
  }
  registers[op.getResult()] = sums;
}

} // namespace kdac
