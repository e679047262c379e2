// A warp's own 16 rows, before its pair meets: sums of decays, the factors that
// stay in the image, and the products of the diagonal.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

static constexpr int64_t kSumUnit = 0x0c00; ///< 2^-12 in f16

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

/// One slice: its factors, their place in the image, and what they add to the
/// diagonal products `sums`: keys with columns 0-7, queries with columns 0-7,
/// and rows 8-15 of both with columns 8-15. Behind them come its log-decays, if
/// they are read ahead.
void ChunkPreparer::boundedSlice(Value slice, Values &sums) {
  enterSlice(slice);
  Values words, next;
  if (readsDecaysAhead())
    words = takeDecays(sums);
  else
    words = decays(parts.decay.getInput());
  Value upTo = triangle(kSumUnit);
  Value whole = b.i32(kSumUnit << 16 | kSumUnit);
  Values exponents = sumDecays({upTo, whole, b.i32(0), upTo}, words);
  storeTotals(slice, exponents);
  // Of the last one's there is none: the first, which nobody uses.
  if (readsDecaysAhead())
    next = storedDecays(b.bitAnd(b.add(slice, 1), slices - 1));
  oneAnchor(exponents, sums);
  sums.append(next);
}

ChunkPreparer::Values ChunkPreparer::takeDecays(Values &sums) const {
  Values words(sums.begin() + kDiagonalSums, sums.end());
  sums.resize(kDiagonalSums);
  return words;
}

/// The block's totals are in the lanes of its last row, four each, and stay in
/// their order: columns 2 inQuad, the next, and 8 further on.
void ChunkPreparer::storeTotals(Value slice, ArrayRef<Value> exponents) {
  Value isLast = b.equal(quad, b.i32(7));
  Value row = b.mul(block, roles.keyDim() * 4);
  Value lanes = b.add(b.mul(slice, 64), b.mul(inQuad, 16));
  Value to = scratchAt(0, b.add(row, lanes));
  Values totals = {exponents[2], exponents[3], exponents[6], exponents[7]};
  if (isBounded())
    return b.storeIf(isLast, totals, to, layout.totals);
  // Without a bound there are no four registers in a row for them.
  b.storeIf(isLast, ArrayRef(totals).take_front(2), to, layout.totals);
  b.storeIf(isLast, ArrayRef(totals).take_back(2), to, layout.totals + 8);
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
    if (readsDecaysAhead())
      readLoads(queries, /*tokens=*/false);
    for (int64_t part = 0; part < 4; ++part)
      keyPart(part);
    putFragment(parts.remaining, own, remaining);
    if (parts.keys)
      putFragment(parts.keys, own, imageKeys);
    if (!readsDecaysAhead())
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
