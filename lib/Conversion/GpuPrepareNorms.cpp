// Norms of a warp's rows, and what each query makes of its own key: sums over
// columns, by tensor cores.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// The value that `norm` is only there for: what its rows are multiplied by.
static Value rowFactorOf(tile::ReduceOp norm) {
  Value value = norm.getResult();
  while (value.hasOneUse() && !isa<tile::BroadcastOp>(*value.user_begin()))
    value = (*value.user_begin())->getResult(0);
  return value;
}

/// Rows x and y of a sum over x * y, as they are in the image.
static std::pair<Value, Value> rowsOf(tile::ReduceOp sum) {
  auto product = sum.getInput().getDefiningOp<arith::MulFOp>();
  auto rows = [](Value widened) {
    return widened.getDefiningOp<arith::ExtFOp>().getIn();
  };
  return {rows(product.getLhs()), rows(product.getRhs())};
}

/// Sums over the rows that norms are made of, for rows quad and quad + 8.
/// Tensor cores multiply the same eight rows of two tiles, one below the other,
/// with those of each tile: the sums are on the diagonals. Eight columns at a
/// time, whose words lie in registers as they are loaded.
void ChunkPreparer::sumNorms() {
  SmallVector<tile::ReduceOp> all(parts.norms);
  if (parts.ownSum)
    all.push_back(parts.ownSum);
  if (all.empty())
    return;
  auto offsetOf = [&](Value tile) { return at.place(tile).getOffset(); };
  llvm::SetVector<Value> left, right;
  for (tile::ReduceOp sum : all) {
    auto [x, y] = rowsOf(sum);
    left.insert(x);
    left.insert(y);
    right.insert(y);
  }
  SmallVector<Value> tiles = left.takeVector();
  llvm::sort(tiles,
             [&](Value x, Value y) { return offsetOf(x) < offsetOf(y); });
  auto numberOf = [](ArrayRef<Value> all, Value tile) {
    return std::distance(all.begin(), llvm::find(all, tile));
  };
  // ownRows has the rows 8-15 where the last tile's are wanted.
  int64_t apart = offsetOf(tiles.back()) - offsetOf(tiles.front()) - 1024;
  Value ofTile = b.mul(b.rem(b.div(at.lane, 8), 2), apart);
  // Of a right side and eight rows.
  Values products(4 * 2 * right.size(), b.f32(0));
  auto addSlice = [&](Value slice, Values &products) {
    enterSlice(slice);
    Value rows = b.add(own, ofTile);
    Values words;
    auto load = [&](int64_t half) {
      Value from = roles.pointer(rows, offsetOf(tiles.front()) + half * 1024);
      words.append(b.ldmatrix(from, 4, /*transposed=*/false));
    };
    auto multiply = [&](int64_t half, int64_t columns) {
      auto sums = MutableArrayRef<Value>(products);
      auto ofHalf = ArrayRef<Value>(words).slice(4 * half, 4);
      for (auto [i, tile] : llvm::enumerate(right))
        b.mma(sums.slice(4 * (2 * i + half), 4), ofHalf.slice(columns, 2),
              ofHalf[columns + numberOf(tiles, tile)],
              getElementTypeOrSelf(tile.getType()));
    };
    if (storesDecaysAhead()) {
      load(0);
      load(1);
      return storeDecaysOfSlice(
          [&](int64_t part) { multiply(part / 2, part % 2 * 2); });
    }
    for (int64_t half : {0, 1}) {
      load(half);
      multiply(half, 0);
      multiply(half, 2);
    }
  };
  roles.loop(b.i32(0), b.i32(slices), 1, products, addSlice);
  if (storesDecaysAhead())
    b.memoryFence();
  Value isOdd = b.equal(b.rem(quad, 2), b.i32(1));
  Value lane = b.add(b.mul(quad, 4), b.div(quad, 2));
  normRows.clear();
  for (tile::ReduceOp sum : all)
    for (int64_t half : {0, 1}) {
      auto [x, y] = rowsOf(sum);
      int64_t first = 4 * (2 * numberOf(right.getArrayRef(), y) + half) +
                      2 * numberOf(tiles, x);
      Value onDiagonal =
          roles.select(isOdd, products[first + 1], products[first]);
      normRows.push_back(b.shuffle(onDiagonal, lane));
    }
  normsFinished = false;
  if (parts.ownSum) {
    Value at8 = normRows.pop_back_val(), atQuad = normRows.pop_back_val();
    storeOwn(at8, atQuad);
  }
  if (!isBounded())
    finishNorms();
}

/// The image takes what each query makes of its own key: lanes with an even
/// number in row quad, the others in row quad + 8.
void ChunkPreparer::storeOwn(Value at8, Value atQuad) {
  rememberNorms();
  Values own;
  for (auto [half, sum] : {std::pair(0, atQuad), std::pair(1, at8)}) {
    Group group;
    group.col = rowPairs(half).row;
    at.remember(parts.ownSum.getResult(), group, {sum});
    own.push_back(parts.own == parts.ownSum.getResult()
                      ? sum
                      : at.evaluateOp(parts.own.getDefiningOp(), group)[0]);
  }
  Value lower = b.rem(inQuad, 2);
  Value isFirst = b.equal(lower, b.i32(0));
  Value row = b.add(firstRow, b.mul(lower, 8));
  b.store({roles.select(isFirst, own[0], own[1])},
          vectorAt(parts.own, b.mul(row, 4)), b.getF32Type(), 4);
}

/// Several loops use the factors that norms become, not the norms.
void ChunkPreparer::finishNorms() {
  rememberNorms();
  Values factors;
  for (tile::ReduceOp norm : parts.norms)
    for (int64_t half : {0, 1}) {
      Group group;
      group.col = rowPairs(half).row;
      factors.push_back(at.evaluate(rowFactorOf(norm), group)[0]);
    }
  normRows = factors;
  normsFinished = true;
}

/// The norms are known to evaluate(), in the rows of this lane.
void ChunkPreparer::rememberNorms() {
  for (auto [i, norm] : llvm::enumerate(parts.norms))
    for (int64_t half : {0, 1}) {
      Group group;
      group.col = rowPairs(half).row;
      Value known = normsFinished ? rowFactorOf(norm) : norm.getResult();
      at.remember(known, group, {normRows[2 * i + half]});
    }
}

} // namespace kdac
