// tile.decayed_gram on tensor cores: scaled factors in shared memory, one level
// of anchors after the other (dialect/Tile/Tile.td has the method).
#include "GpuLowering.h"

using namespace mlir;

namespace kdac {

/// Lowers one op. Blocks of 2h rows are anchored at the last row of their first
/// half, for h = rows/2 .. leaf; then blocks of `leaf` rows at their first row.
/// Scratch buffer s holds left side s scaled, the last one the right side.
class GramLowering {
public:
  GramLowering(GpuLowering &at, tile::DecayedGramOp op)
      : at(at), b(at.b), op(op), sides(op.getLhs().size()), leaf(op.getLeaf()) {
    auto type = cast<RankedTensorType>(op.getRhs().getType());
    rows = type.getDimSize(0);
    width = type.getDimSize(1);
  }

  void run();

private:
  using Values = GpuEmitter::Values;
  /// A 16x16 tile of every side's result that this warp accumulates.
  struct Task {
    Value row, col;              ///< first row and column, i32
    SmallVector<Values, 2> sums; ///< per side, 8 accumulators
  };

  void zeroResults();
  void halvingFactors(int64_t half);
  void leafFactors();
  void storeScaled(unsigned buffer, Value source, const Group &group,
                   ArrayRef<Value> factors);
  Values decayBetween(const Group &later, const Group &earlier);
  Task task(Value rowTile, Value colTile);
  void product(Task &task);
  void storeTask(const Task &task);
  void offDiagonalTiles(int64_t half);
  void keepWithin(Task &task, const Task &products, int64_t half);
  Value isKept(bool rowHalf, bool colHalf, Value row, Value col, int64_t half,
               bool strict);
  SmallVector<Task> leafTasks();

  GpuLowering::Operand scratch(unsigned buffer) {
    tile::PlaceAttr place = at.place(op.getResult(0), sides + buffer);
    return {place.getOffset(), place.getPitch(), op.getOperand(), false, {}};
  }

  GpuLowering &at;
  GpuEmitter &b;
  tile::DecayedGramOp op;
  unsigned sides;
  int64_t leaf, rows = 0, width = 0;
};

void GramLowering::zeroResults() {
  Layout layout = at.linear({rows, rows}, 4);
  for (Value result : op.getResults())
    at.forGroups(layout, [&](const Group &group) {
      at.storeShared(result, group, Values(4, b.f32(0)));
    });
}

//===-- Scaled factors
//-----------------------------------------------------===//

/// exp2(G[later] - G[earlier]) for the elements of a group.
GramLowering::Values GramLowering::decayBetween(const Group &later,
                                                const Group &earlier) {
  Values from = at.evaluate(op.getDecay(), earlier);
  Values to = at.evaluate(op.getDecay(), later);
  Values factors;
  for (auto [x, y] : llvm::zip(to, from))
    factors.push_back(b.exp2(arith::SubFOp::create(b, x, y)));
  return factors;
}

void GramLowering::storeScaled(unsigned buffer, Value source,
                               const Group &group, ArrayRef<Value> factors) {
  Values elements = at.evaluate(source, group);
  for (auto [i, factor] : llvm::enumerate(factors))
    elements[i] = b.mulF(elements[i], factor);
  GpuLowering::Operand to = scratch(buffer);
  Value pointer =
      at.sharedAddress(to.offset, to.pitch, to.element, group.row, group.col);
  int64_t align = std::min<int64_t>(16, group.width * bytesOf(to.element));
  at.emitStore([this, elements, pointer, to, align] {
    b.store(elements, pointer, to.element, align);
  });
}

static Group atRow(Group group, Value row) {
  group.row = {row, 0};
  return group;
}

/// Lines 0 .. rows/2 - 1 are pairs of a row in a second half (a left side) and
/// one in the first half before it (a right side), with one anchor between.
void GramLowering::halvingFactors(int64_t half) {
  Layout layout = at.linear({rows / 2, width}, 16 / bytesOf(op.getOperand()));
  at.forGroups(layout, [&](const Group &group) {
    Value line = b.at(group.row);
    Value blockStart = b.mul(b.div(line, half), 2 * half);
    Value first = b.add(blockStart, b.rem(line, half));
    Group earlier = atRow(group, first),
          later = atRow(group, b.add(first, half));
    Group anchor = atRow(group, b.add(blockStart, half - 1));
    Values left = decayBetween(later, anchor);
    for (unsigned side = 0; side < sides; ++side)
      storeScaled(side, op.getLhs()[side], later, left);
    storeScaled(sides, op.getRhs(), earlier, decayBetween(anchor, earlier));
  });
}

void GramLowering::leafFactors() {
  Layout layout = at.linear({rows, width}, 16 / bytesOf(op.getOperand()));
  at.forGroups(layout, [&](const Group &group) {
    Values left, right;
    if (leaf > 1) { // a leaf of one row has no decay inside
      Value row = b.at(group.row);
      Group anchor = atRow(group, b.mul(b.div(row, leaf), leaf));
      left = decayBetween(group, anchor);
      right = decayBetween(anchor, group);
    }
    for (unsigned side = 0; side < sides; ++side)
      storeScaled(side, op.getLhs()[side], group, left);
    storeScaled(sides, op.getRhs(), group, right);
  });
}

//===-- Products
//-----------------------------------------------------------===//

GramLowering::Task GramLowering::task(Value rowTile, Value colTile) {
  return {b.mul(rowTile, 16), b.mul(colTile, 16),
          SmallVector<Values, 2>(sides, Values(8, b.f32(0)))};
}

/// Adds the products of the scratch buffers' rows to every side of a task.
void GramLowering::product(Task &task) {
  GpuLowering::Operand right = scratch(sides);
  right.transposed = true; // rows of the right side are columns of the result
  for (int64_t k = 0; k < width; k += mmaDepth(op.getOperand())) {
    Values columns = at.loadB(right, {task.col, 0}, k);
    for (unsigned side = 0; side < sides; ++side) {
      Values fragment = at.loadA(scratch(side), {task.row, 0}, k);
      for (int64_t tile : {0, 1})
        b.mma(MutableArrayRef<Value>(task.sums[side]).slice(4 * tile, 4),
              fragment, ArrayRef<Value>(columns).slice(2 * tile, 2),
              op.getOperand());
    }
  }
}

void GramLowering::storeTask(const Task &task) {
  Value quad = b.div(at.lane, 4), pair = b.mul(b.rem(at.lane, 4), 2);
  Value row = b.add(task.row, quad), col = b.add(task.col, pair);
  for (unsigned side = 0; side < sides; ++side)
    for (int64_t tile : {0, 1})
      for (int64_t half : {0, 1}) {
        Group group;
        group.row = {row, 8 * half};
        group.col = {col, 8 * tile};
        group.width = 2;
        at.storeShared(
            op.getResult(side), group,
            ArrayRef<Value>(task.sums[side]).slice(4 * tile + 2 * half, 2));
      }
}

/// Whole tiles whose rows are in second halves and columns in first halves.
void GramLowering::offDiagonalTiles(int64_t half) {
  int64_t perHalf = half / 16, perBlock = perHalf * perHalf;
  int64_t total = rows / (2 * half) * perBlock;
  for (int64_t first = 0; first < total; first += at.warps) {
    // Surplus warps repeat the first tiles and write the same values.
    Value number = b.rem(b.add(at.warp, first), total);
    Value block = b.mul(b.div(number, perBlock), 2 * perHalf);
    Value inside = b.rem(number, perBlock);
    Value rowTile = b.add(b.add(block, b.div(inside, perHalf)), perHalf);
    Value colTile = b.add(block, b.rem(inside, perHalf));
    Task tile = task(rowTile, colTile);
    product(tile);
    storeTask(tile);
  }
}

/// The tiles that hold the leaves: diagonal ones, and all of a larger leaf.
SmallVector<GramLowering::Task> GramLowering::leafTasks() {
  int64_t perLeaf = std::max<int64_t>(1, leaf / 16);
  int64_t total = rows / 16 * perLeaf;
  SmallVector<Task> tasks;
  for (int64_t first = 0; first < total; first += at.warps) {
    Value number = b.rem(b.add(at.warp, first), total);
    Value rowTile = b.div(number, perLeaf);
    Value leafStart = b.mul(b.div(rowTile, perLeaf), perLeaf);
    tasks.push_back(task(rowTile, b.add(leafStart, b.rem(number, perLeaf))));
  }
  return tasks;
}

/// i1: whether an element of a diagonal tile belongs to the level `half`, or to
/// a leaf when half is 0. `rowHalf`, `colHalf` say in which 8 rows and columns
/// it is, `row` and `col` where in them. Null means no: most elements are
/// decided here, not by the kernel.
Value GramLowering::isKept(bool rowHalf, bool colHalf, Value row, Value col,
                           int64_t half, bool strict) {
  using Predicate = arith::CmpIPredicate;
  auto compare = [&](Predicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, predicate, x, y);
  };
  auto constant = [&](bool kept) -> Value {
    return kept ? arith::ConstantOp::create(b, b.getBoolAttr(true)).getResult()
                : Value();
  };
  Predicate below = strict ? Predicate::slt : Predicate::sle;
  int64_t block = half ? 2 * half : leaf;
  if (block >= 16) {
    if (half || rowHalf != colHalf)
      return constant(rowHalf && !colHalf);
    return compare(below, col, row);
  }
  if (rowHalf != colHalf)
    return {};
  Value same = compare(Predicate::eq, b.div(row, block), b.div(col, block));
  if (!half)
    return arith::AndIOp::create(b, same, compare(below, col, row));
  Value inHalves = arith::AndIOp::create(
      b, compare(Predicate::sge, b.rem(row, block), b.i32(half)),
      b.less(b.rem(col, block), b.i32(half)));
  return arith::AndIOp::create(b, same, inHalves);
}

/// Takes the products that belong to this level into the task's sums.
void GramLowering::keepWithin(Task &task, const Task &products, int64_t half) {
  using Predicate = arith::CmpIPredicate;
  Value quad = b.div(at.lane, 4), pair = b.mul(b.rem(at.lane, 4), 2);
  // A leaf of several tiles: those below the diagonal are kept whole.
  Value below, diagonal;
  if (!half && leaf > 16) {
    below = b.less(task.col, task.row);
    diagonal = arith::CmpIOp::create(b, Predicate::eq, task.row, task.col);
  }
  for (unsigned side = 0; side < sides; ++side)
    for (int64_t i = 0; i < 8; ++i) {
      Value kept = isKept(i / 2 % 2, i / 4, quad, b.add(pair, i % 2), half,
                          op.getStrict()[side]);
      if (below && kept)
        kept = arith::AndIOp::create(b, diagonal, kept);
      if (below)
        kept = kept ? arith::OrIOp::create(b, below, kept).getResult() : below;
      if (!kept)
        continue;
      Value &sum = task.sums[side][i];
      sum = arith::SelectOp::create(b, kept, products.sums[side][i], sum);
    }
}

void GramLowering::run() {
  SmallVector<GpuLowering::Range> writes;
  for (unsigned i = 0; i < 2 * sides + 1; ++i)
    writes.push_back(at.range(op.getResult(0), i));
  SmallVector<Value> inputs(op->operand_begin(), op->operand_end());
  at.access(at.rangesRead(inputs), writes);
  at.forget();

  zeroResults();
  SmallVector<Task> leaves = leafTasks();
  auto addToLeaves = [&](int64_t half) {
    for (Task &leafTask : leaves) {
      Task products{leafTask.row, leafTask.col,
                    SmallVector<Values, 2>(sides, Values(8, b.f32(0)))};
      product(products);
      keepWithin(leafTask, products, half);
    }
  };
  for (int64_t half = rows / 2; half >= leaf && half >= 1; half /= 2) {
    halvingFactors(half);
    b.barrier();
    if (half >= 16)
      offDiagonalTiles(half);
    else
      addToLeaves(half);
    b.barrier();
  }
  leafFactors();
  b.barrier();
  addToLeaves(0);
  for (const Task &leafTask : leaves)
    storeTask(leafTask);
}

void GpuLowering::lowerGram(tile::DecayedGramOp op) {
  GramLowering(*this, op).run();
}

} // namespace kdac
