// Products on mma.sync tensor cores, and those of f32, which they would round.
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

GpuLowering::Operand GpuLowering::operandOf(Value value, bool transposed) {
  tile::PlaceAttr at = place(value);
  return Operand{at.getOffset(), at.getPitch(),
                 tileType(value).getElementType(), transposed,
                 slots.lookup(value)};
}

/// Where this warp's tiles of 16 rows begin.
SmallVector<Coord> GpuLowering::rowTilesOf(ArrayRef<int64_t> shape) {
  const Layout &layout = distributed(shape);
  int64_t count = shape[0] / 16 / std::gcd(shape[0] / 16, warps);
  int64_t groupsEach = layout.groups.size() / count;
  Value quad = b.div(lane, 4); // fragment coordinates are per lane
  SmallVector<Coord> rows;
  for (int64_t i = 0; i < count; ++i) {
    Coord first = layout.groups[i * groupsEach].row;
    rows.push_back({arith::SubIOp::create(b, first.base, quad), first.offset});
  }
  return rows;
}

bool GpuLowering::holdOperands(scf::ForOp loop) {
  for (auto dot : loop.getBody()->getOps<tile::DotOp>()) {
    Operation *source = dot.getA().getDefiningOp();
    Type element = tileType(dot.getA()).getElementType();
    if (schedule.getForm() != "attention" || !source ||
        loop->isAncestor(source) || tile::multipliesByThreads(element))
      continue;
    access({range(dot.getA())}, {});
    Operand left = operandOf(dot.getA(), dot.getTransA());
    int64_t inner = tileType(dot.getA()).getDimSize(dot.getTransA() ? 0 : 1);
    SmallVector<Coord> rows = rowTilesOf(tileType(dot.getResult()).getShape());
    SmallVector<Values> &fragments = heldFragments[dot];
    for (int64_t k = 0; k < inner; k += mmaDepth(left.element))
      for (Coord row : rows)
        fragments.push_back(loadA(left, row, k));
  }
  return !heldFragments.empty();
}

void GpuLowering::lowerDot(tile::DotOp op) {
  Operand left = operandOf(op.getA(), op.getTransA());
  Operand right = operandOf(op.getB(), op.getTransB());
  SmallVector<Range> reads = {range(op.getA()), range(op.getB())};
  if (op.getAcc())
    llvm::append_range(reads, rangesRead(op.getAcc()));
  access(reads, {});
  forget();

  const Layout &layout = distributed(tileType(op.getResult()).getShape());
  Values sums(layout.slots);
  for (const Group &group : layout.groups) {
    Values start = op.getAcc() ? evaluate(op.getAcc(), group)
                               : Values(group.width, b.f32(0));
    llvm::copy(start, sums.begin() + group.slot);
  }
  tile::multipliesByThreads(left.element)
      ? multiplyByThreads(op, left, right, sums)
      : multiplyFragments(op, left, right, sums);
  registers[op.getResult()] = sums;
}

void GpuLowering::multiplyFragments(tile::DotOp op, const Operand &left,
                                    const Operand &right, Values &sums) {
  auto shape = tileType(op.getResult()).getShape();
  int64_t inner = tileType(op.getA()).getDimSize(op.getTransA() ? 0 : 1);
  const Layout &layout = distributed(shape);
  // Four registers make a 16x8 accumulator; its first group has its corner.
  int64_t tiles = layout.slots / 4;
  auto corner = [&](int64_t tile) { return layout.groups[2 * tile]; };
  int64_t rowTiles = std::gcd(shape[0] / 16, warps);
  rowTiles = shape[0] / 16 / rowTiles;
  int64_t colTiles = tiles / rowTiles;
  // Fragment coordinates are per lane; products address whole tiles.
  SmallVector<Coord> rows = rowTilesOf(shape), cols;
  Value pair = b.mul(b.rem(lane, 4), 2);
  for (int64_t j = 0; j < colTiles; ++j) {
    Coord first = corner(j).col;
    cols.push_back({arith::SubIOp::create(b, first.base, pair), first.offset});
  }
  auto held = heldFragments.find(op);
  for (int64_t k = 0; k < inner; k += mmaDepth(left.element)) {
    SmallVector<Values> a;
    for (auto [i, row] : llvm::enumerate(rows))
      a.push_back(
          held == heldFragments.end()
              ? loadA(left, row, k)
              : held->second[k / mmaDepth(left.element) * rowTiles + i]);
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
}

/// `width` rows of the left side, or columns of the right one, from `at` on, in
/// each of `steps` steps of the product from `k` on: step by step.
GpuLowering::Values GpuLowering::loadSteps(const Operand &of, bool isLeft,
                                           Coord at, int64_t width, Value k,
                                           int64_t steps) {
  Values elements;
  auto load = [&](Coord row, Coord col, int64_t count) {
    Value from =
        sharedAddress(of.offset, of.pitch, of.element, row, col, of.slot);
    return b.load(from, of.element, count, count * bytesOf(of.element));
  };
  if (of.transposed == isLeft) { // a step is a row in memory
    for (int64_t i = 0; i < steps; ++i)
      elements.append(load({k, i}, at, width));
    return elements;
  }
  elements.resize(steps * width);
  for (int64_t i = 0; i < width; ++i)
    for (auto [step, element] : llvm::enumerate(load(at.plus(i), {k}, steps)))
      elements[step * width + i] = element;
  return elements;
}

/// A thread multiplies and adds for the elements that are its own: `steps` of
/// the product from `first` on.
GpuLowering::Values GpuLowering::multiplySteps(const Operand &left,
                                               const Operand &right,
                                               const Layout &layout,
                                               Value first, int64_t steps,
                                               const Values &sums) {
  constexpr int64_t together = 4; // of one access
  auto loop = scf::ForOp::create(b, b.i32(0), b.i32(steps), b.i32(together),
                                 ValueRange(sums));
  loop->setAttr("llvm.loop_annotation", b.rolled());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value k = loop.getInductionVar();
  if (first)
    k = b.add(first, k);
  Values next(loop.getRegionIterArgs());
  std::map<Coord, Values> rows, cols;
  for (const Group &group : layout.groups) {
    Values &x = rows[group.row], &y = cols[group.col];
    if (x.empty())
      x = loadSteps(left, /*isLeft=*/true, group.row, 1, k, together);
    if (y.empty())
      y = loadSteps(right, /*isLeft=*/false, group.col, group.width, k,
                    together);
    for (int64_t step = 0; step < together; ++step)
      for (int64_t i = 0; i < group.width; ++i) {
        Value &sum = next[group.slot + i];
        sum = b.fma(x[step], y[step * group.width + i], sum);
      }
  }
  scf::YieldOp::create(b, next);
  return Values(loop.getResults());
}

/// Long sums are sums of blocks that begin at zero, whose rounding errors are
/// those of short sums.
void GpuLowering::multiplyByThreads(tile::DotOp op, const Operand &left,
                                    const Operand &right, Values &sums) {
  constexpr int64_t blockSteps = 64;
  int64_t inner = tileType(op.getA()).getDimSize(op.getTransA() ? 0 : 1);
  const Layout &layout = distributed(tileType(op.getResult()).getShape());
  if (inner % blockSteps != 0) {
    sums = multiplySteps(left, right, layout, Value(), inner, sums);
    return;
  }
  auto loop =
      scf::ForOp::create(b, b.i32(0), b.i32(inner), b.i32(blockSteps), sums);
  loop->setAttr("llvm.loop_annotation", b.rolled());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Values next = multiplySteps(left, right, layout, loop.getInductionVar(),
                                blockSteps, Values(sums.size(), b.f32(0)));
    for (auto [sum, before] : llvm::zip(next, loop.getRegionIterArgs()))
      sum = b.addF(before, sum);
    scf::YieldOp::create(b, next);
  }
  sums.assign(loop.getResults().begin(), loop.getResults().end());
}

} // namespace kdac
