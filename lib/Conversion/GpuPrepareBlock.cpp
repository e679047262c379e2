// A warp's own 16 rows, before its pair meets: norms, decays, the factors that
// stay in the image, and the products of the diagonal.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Log-decays are summed by tensor cores as f16: scaled by 2^12, or where
/// nothing bounds them, down to -300, by 2^7.
static constexpr double kBoundedScale = 4096.0, kUnboundedScale = 128.0;
static constexpr int64_t kSumUnit = 0x0c00; ///< 2^-12 in f16

//===-- Before the pair meets
//----------------------------------------------===//

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
  roles.loop(b.i32(0), b.i32(slices), 1, products,
             [&](Value slice, Values &products) {
               enterSlice(slice);
               Value rows = b.add(own, ofTile);
               auto sums = MutableArrayRef<Value>(products);
               for (int64_t half : {0, 1}) {
                 Value from =
                     roles.pointer(rows, offsetOf(tiles.front()) + half * 1024);
                 Values words = b.ldmatrix(from, 4, /*transposed=*/false);
                 for (int64_t columns : {0, 2})
                   for (auto [i, tile] : llvm::enumerate(right))
                     b.mma(sums.slice(4 * (2 * i + half), 4),
                           ArrayRef<Value>(words).slice(columns, 2),
                           words[columns + numberOf(tiles, tile)],
                           getElementTypeOrSelf(tile.getType()));
               }
             });
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

double ChunkPreparer::sumScale() const {
  return isBounded() ? kBoundedScale : kUnboundedScale;
}

/// The slice of `input`, scaled, as fragments of pairs of tokens.
ChunkPreparer::Values ChunkPreparer::decays(Value input) {
  if (parts.wideLogits)
    return fragment(parts.wideLogits.getResult(), own, /*transposed=*/true);
  Value scale = b.f32(sumScale());
  readLoads(input, /*tokens=*/true);
  Values words;
  for (int64_t part = 0; part < 4; ++part) {
    Values pair = at.evaluate(input, tokenPairs(part));
    words.push_back(
        word(b.mulF(pair[0], scale), b.mulF(pair[1], scale), f16()));
  }
  return words;
}

/// Tensor cores sum them: `sums` [16, 16] times the tokens, in fragment order.
ChunkPreparer::Values ChunkPreparer::sumDecays(ArrayRef<Value> sums,
                                               ArrayRef<Value> words) {
  Values exponents(8, b.f32(0));
  auto all = MutableArrayRef<Value>(exponents);
  multiply(all.slice(0, 4), sums, words[0], words[1], f16());
  multiply(all.slice(4, 4), sums, words[2], words[3], f16());
  return exponents;
}

/// Row quad of an 8 x 8 triangle of `unit`, columns 2 inQuad and the next.
Value ChunkPreparer::triangle(int64_t unit) {
  Value column = b.mul(inQuad, 2);
  auto element = [&](Value condition, int64_t bits) {
    return roles.select(condition, b.i32(bits), b.i32(0));
  };
  Value beyond = b.add(quad, 1);
  return arith::OrIOp::create(
      b, element(b.less(column, beyond), unit),
      element(b.less(b.add(column, 1), beyond), unit << 16));
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

/// One slice: its factors, their place in the image, and what they add to the
/// diagonal products `sums`: keys with columns 0-7, queries with columns 0-7,
/// and rows 8-15 of both with columns 8-15.
void ChunkPreparer::boundedSlice(Value slice, Values &sums) {
  enterSlice(slice);
  Values words = decays(parts.decay.getInput());
  Value upTo = triangle(kSumUnit);
  Value whole = b.i32(kSumUnit << 16 | kSumUnit);
  Values exponents = sumDecays({upTo, whole, b.i32(0), upTo}, words);
  storeTotals(slice, exponents);
  oneAnchor(exponents, sums);
}

/// The block's totals are in the lanes of its last row.
void ChunkPreparer::storeTotals(Value slice, ArrayRef<Value> exponents) {
  Value isLast = b.equal(quad, b.i32(7));
  Value row = b.mul(block, roles.keyDim() * 4);
  Value column = b.add(b.mul(slice, 64), b.mul(inQuad, 8));
  Value to = scratchAt(0, b.add(row, column));
  b.storePairIf(isLast, exponents[2], exponents[3], to, layout.totals);
  b.storePairIf(isLast, exponents[6], exponents[7], to, layout.totals + 32);
}

/// The slice's factors from `exponents` L, with 2^-L for the right side. What
/// is done with a value is done as soon as it is there: 72 registers. Rows with
/// scales need more of them and come and go by halves of their columns.
void ChunkPreparer::oneAnchor(ArrayRef<Value> exponents, Values &sums) {
  Values up(8), totals(4); // totals: of columns 2 inQuad, + 1, + 8, + 9
  auto powers = [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i)
      up[i] = b.exp2(exponents[i]);
    Value lastRow = b.add(inQuad, 28);
    for (int64_t i = first; i < end; ++i)
      if (i % 4 >= 2)
        totals[i / 4 * 2 + i % 2] = b.shuffle(up[i], lastRow);
  };
  Value keys = parts.keyRows, queries = parts.queryRows;
  auto rounded = [&](const Values &x) { return word(x[0], x[1], bf16()); };
  Values left, query, right, remaining;
  Values imageKeys, imageQueries; // without scales
  auto keyPart = [&](int64_t part) {
    Values k =
        scaled(at.evaluate(keys, rowPairs(part)), /*ofKeys=*/true, part % 2);
    Values down, rest;
    for (int64_t i : {0, 1}) {
      down.push_back(b.mulF(k[i], b.exp2(b.negF(exponents[2 * part + i]))));
      rest.push_back(b.mulF(down[i], totals[part / 2 * 2 + i]));
      k[i] = b.mulF(k[i], up[2 * part + i]);
    }
    right.push_back(rounded(down));
    remaining.push_back(unscaled(rounded(rest), /*ofKeys=*/true, part % 2));
    left.push_back(hasSystem() ? rounded(k) : b.i32(0));
    imageKeys.push_back(unscaled(left.back(), /*ofKeys=*/true, part % 2));
  };
  auto queryPart = [&](int64_t part) {
    Values q = scaled(at.evaluate(queries, rowPairs(part)), /*ofKeys=*/false,
                      part % 2);
    query.push_back(word(b.mulF(q[0], up[2 * part]),
                         b.mulF(q[1], up[2 * part + 1]), bf16()));
    imageQueries.push_back(unscaled(query.back(), /*ofKeys=*/false, part % 2));
  };
  auto put = [&](Value tile, ArrayRef<Value> words, int64_t half) {
    putFragment(tile, ownHalf(half), words.take_back(2));
  };
  if (!scalesRows()) {
    powers(0, 8);
    rememberNorms();
    readLoads(keys, /*tokens=*/false);
    for (int64_t part = 0; part < 4; ++part)
      keyPart(part);
    putFragment(parts.remaining, own, remaining);
    if (parts.keys)
      putFragment(parts.keys, own, imageKeys);
    readLoads(queries, /*tokens=*/false);
    for (int64_t part = 0; part < 4; ++part)
      queryPart(part);
  }
  for (int64_t half = 0; scalesRows() && half < 2; ++half) {
    powers(4 * half, 4 * half + 4);
    readLoads(keys, /*tokens=*/false, half);
    keyPart(2 * half);
    keyPart(2 * half + 1);
    put(parts.remaining, remaining, half);
    if (parts.keys)
      put(parts.keys, imageKeys, half);
    readLoads(queries, /*tokens=*/false, half);
    queryPart(2 * half);
    queryPart(2 * half + 1);
    put(parts.queries, imageQueries, half);
  }
  auto all = MutableArrayRef<Value>(sums);
  if (hasSystem())
    multiply(all.slice(0, 4), left, right[0], right[2], bf16());
  multiply(all.slice(4, 4), query, right[0], right[2], bf16());
  Values lower = {left[1], query[1], left[3], query[3]};
  multiply(all.slice(8, 4), lower, right[1], right[3], bf16());
  if (!scalesRows())
    putFragment(parts.queries, own, imageQueries);
}

/// The diagonal blocks: of the system in f32 to the scratch, of the attention
/// to the image.
void ChunkPreparer::storeDiagonal(const Values &sums, Value strength) {
  if (strength)
    storeSystem(sums, strength);
  Value column = b.mul(inQuad, 2), beyond = b.add(quad, 1);
  if (roles.isRefined()) // the chain applies the diagonal itself
    beyond = quad;
  Value first = b.less(column, beyond);
  Value second = b.less(b.add(column, 1), beyond);
  auto masked = [&](Value x, Value y) {
    return word(roles.select(first, x, b.f32(0)),
                roles.select(second, y, b.f32(0)), bf16());
  };
  // Its columns start where the attention does in the panel's rows.
  tile::PlaceAttr place = at.place(parts.attention);
  int64_t panel = place.getOffset() & ~int64_t(1023);
  Value unit = b.add(b.shiftLeft(block, 5), place.getOffset() - panel);
  Value offset = b.add(buffer, b.bitXor(ownRows, unit));
  b.stmatrix(roles.pointer(offset),
             {masked(sums[4], sums[5]), word(sums[6], sums[7], bf16()),
              b.i32(0), masked(sums[10], sums[11])},
             false, panel);
}

/// The block of the system times its write strengths.
void ChunkPreparer::storeSystem(const Values &sums, Value strength) {
  Value atRow = b.shuffle(strength, quad);
  Value at8 = b.shuffle(strength, b.add(quad, 8));
  roles.branch(b.less(at.lane, b.i32(16)), [&] {
    Value row = b.add(b.mul(block, 16), at.lane);
    b.store({strength}, strengthsAt(b.mul(row, 4)), b.getF32Type(), 4);
  });
  Value to = b.add(b.mul(block, layout.diagonalBytes),
                   b.add(b.mul(quad, 64), b.mul(inQuad, 8)));
  auto put = [&](Value x, Value y, Value factor, int64_t bytes) {
    b.store({b.mulF(x, factor), b.mulF(y, factor)},
            scratchAt(layout.diagonal, to, bytes), b.getF32Type(), 8);
  };
  put(sums[0], sums[1], atRow, 0);
  put(sums[2], sums[3], at8, 512);
  put(sums[8], sums[9], at8, 512 + 32);
}

} // namespace kdac
