// Slices whose log-decays nothing bounds. Rows 0-7 and 8-15 are two halves; x
// is the log-decay from before a half's first row on, a = kAnchor a constant.
//
// * Near elements have x + a >= kNear, and all before them in their half and
//   channel have it too. Factors 2^(x + a) and 2^-(x + a) serve the products of
//   rows of one half, 2^x and 2^(x_7 - x) those of rows 8-15 with rows 0-7.
// * Far elements of rows 4-7 of a half are anchored again at row 3.
// * What is far from there too is halved down to single rows
//   (docs/decisions/0003): no exponent is above 0.
//
// What an element is depends on rows up to its own only, and so do all
// roundings on the way to the products of its row (docs/NUMERICS.md, 3.4).
#include "GpuPrepare.h"

#include <cmath>

using namespace mlir;

namespace kdac {

/// Right factors are 2^-(x + a): from 2^-kAnchor up, which drops what is less
/// than 2^-kMargin in a row. Left ones, 2^(x + a), go down to 2^kNear, and are
/// then lifted by 2^kMargin, so that they drop no more. Sums of rows with their
/// own half are too large by the lift until all slices are done.
static constexpr double kMargin = 14.0, kNear = -126.0;
static constexpr double kAnchor = -kNear - kMargin, kLift = kMargin;
/// Of bf16, twice: 2^-kAnchor and 2^-(kAnchor + kLift).
static constexpr int64_t kAnchorPair = 0x07800780, kLiftedPair = 0x00800080;

/// Stands for x + a of a far element: 2^ that is flushed to zero, 2^ its
/// negative is finite.
static constexpr double kFar = -127.0;

/// Rows of two columns of a slice: quad, and then quad + 8.
struct ChunkPreparer::HalfRows {
  Values keys, queries; ///< times 2^(x + a), lifted
  Values kept[2];       ///< keys times what their half decays by behind them
  Values last[2];       ///< 2^(x + a) of rows 7 and 15
};

/// Fragments of a slice, in the order of their registers.
struct ChunkPreparer::SliceWords {
  Values keys, queries; ///< times 2^(x + a), lifted
  Values before;        ///< of rows 0-7
  Values imageKeys, imageQueries, remaining;
};

/// A product that is not taken apart: its factors' order keeps it in range.
Value ChunkPreparer::times(Value x, Value y) {
  return arith::MulFOp::create(b, x, y, arith::FastMathFlags::contract);
}

ChunkPreparer::Values ChunkPreparer::times(ValueRange x, ValueRange y) {
  Values products;
  for (auto [a, c] : llvm::zip(x, y))
    products.push_back(times(a, c));
  return products;
}

Value ChunkPreparer::lifted(Value x) {
  return times(x, b.f32(std::exp2(kLift)));
}

/// A pair of bf16 times 2^-a, or of lifted ones, which is exact.
Value ChunkPreparer::withoutAnchor(Value pair, bool isLifted) {
  return b.mulPairs(pair, b.i32(isLifted ? kLiftedPair : kAnchorPair), bf16());
}

/// The words of rows quad (`bottom`: quad + 8), and after these what waited.
void ChunkPreparer::round(const HalfRows &rows, int64_t bottom,
                          SliceWords &to) {
  auto rounded = [&](const Values &x) { return word(x[0], x[1], bf16()); };
  auto fromAnchor = [&](const Values &powers) {
    return times(powers, Values(2, b.f32(std::exp2(-kAnchor))));
  };
  auto image = [&](Value pair, bool ofKeys) {
    return unscaled(withoutAnchor(pair), ofKeys, bottom);
  };
  to.keys.push_back(hasSystem() ? rounded(rows.keys) : b.i32(0));
  to.queries.push_back(rounded(rows.queries));
  if (!bottom) {
    to.before.push_back(rounded(rows.kept[0]));
    to.imageKeys.push_back(image(to.keys.back(), true));
    to.imageQueries.push_back(image(to.queries.back(), false));
    return;
  }
  Values first = fromAnchor(rows.last[0]); // 2^x of row 7
  to.imageKeys.push_back(image(rounded(times(rows.keys, first)), true));
  to.imageQueries.push_back(image(rounded(times(rows.queries, first)), false));
  Value kept = withoutAnchor(rounded(times(rows.kept[0], rows.last[1])),
                             /*isLifted=*/false);
  to.remaining.append(
      {unscaled(kept, true, 0), unscaled(rounded(rows.kept[1]), true, 1)});
}

/// Sums of rows 0-7, of rows 8-15 with columns 0-7, and of rows 8-15.
static constexpr int64_t kTop[] = {0, 4}, kLower[] = {2, 6},
                         kBottom[] = {8, 10};

/// sums += left (keys in rows 0-7, queries in rows 8-15) times right. Sums of
/// keys that nobody asks for take no registers.
void ChunkPreparer::addProducts(ArrayRef<int64_t> to, ValueRange left,
                                Value right0, Value right1, Values &sums) {
  Values some(4, b.f32(0));
  for (int64_t i = hasSystem() ? 0 : 2; i < 4; ++i)
    some[i] = sums[to[i / 2] + i % 2];
  multiply(some, left, right0, right1, bf16());
  for (int64_t i = hasSystem() ? 0 : 2; i < 4; ++i)
    sums[to[i / 2] + i % 2] = some[i];
}

/// k times 2^(last - own): `kept`, or from the difference where its factors are
/// out of range.
Value ChunkPreparer::keptFrom(Value kept, Value k, Value own, Value last) {
  Value other = times(k, b.exp2(b.addF(last, b.negF(own))));
  return roles.select(isNear(last), kept, other);
}

/// The image's rows and the products of near elements. `isFar`: there are other
/// elements as well.
void ChunkPreparer::anchoredSlice(ArrayRef<Value> anchored, bool isFar,
                                  Values &sums) {
  rememberNorms();
  Value keys = parts.keyRows, queries = parts.queryRows;
  Value lastRow = b.add(inQuad, 28);
  SliceWords words;
  Values right;
  Values ownSums(2, b.f32(0)); // of a far element's query with its own key
  for (int64_t half : {0, 1}) {
    readLoads(keys, /*tokens=*/false, half);
    readLoads(queries, /*tokens=*/false, half);
    HalfRows rows;
    for (int64_t bottom : {0, 1}) {
      int64_t part = 2 * half + bottom;
      Values k =
          scaled(at.evaluate(keys, rowPairs(part)), /*ofKeys=*/true, bottom);
      Values q = scaled(at.evaluate(queries, rowPairs(part)), /*ofKeys=*/false,
                        bottom);
      Values up, down;
      for (int64_t i : {0, 1}) {
        Value exponent = anchored[2 * part + i];
        if (isFar)
          exponent = roles.select(isNear(exponent), exponent, b.f32(kFar));
        Value power = b.exp2(exponent);
        up.push_back(lifted(power));
        down.push_back(times(k[i], b.exp2(b.negF(exponent))));
        rows.last[bottom].push_back(b.shuffle(power, lastRow));
        Value kept = times(down[i], rows.last[bottom][i]);
        if (isFar) {
          Value own = anchored[2 * part + i];
          kept = keptFrom(kept, k[i], own, b.shuffle(own, lastRow));
          Value rest = roles.select(isNear(fromQuarter(own)), b.f32(0), q[i]);
          ownSums[bottom] = b.fma(rest, k[i], ownSums[bottom]);
        }
        rows.kept[bottom].push_back(kept);
      }
      right.push_back(word(down[0], down[1], bf16()));
      rows.keys = times(k, up);
      rows.queries = times(q, up);
      round(rows, bottom, words);
    }
    // The image's words replace the raw rows at once.
    Value columns = ownHalf(half);
    putFragment(parts.remaining, columns,
                ArrayRef<Value>(words.remaining).take_back(2));
    if (parts.keys)
      putFragment(parts.keys, columns,
                  ArrayRef<Value>(words.imageKeys).take_back(2));
    putFragment(parts.queries, columns,
                ArrayRef<Value>(words.imageQueries).take_back(2));
  }
  for (int64_t bottom : {0, 1})
    addProducts(bottom ? kBottom : kTop,
                {words.keys[bottom], words.queries[bottom],
                 words.keys[2 + bottom], words.queries[2 + bottom]},
                right[bottom], right[2 + bottom], sums);
  addProducts(kLower,
              {withoutAnchor(words.keys[1]), withoutAnchor(words.queries[1]),
               withoutAnchor(words.keys[3]), withoutAnchor(words.queries[3])},
              words.before[0], words.before[1], sums);
  if (isFar && !roles.isRefined()) // else the diagonal is not taken from here
    addOwn(ownSums, sums);
}

/// `own`: what queries of rows quad and quad + 8 make of their own keys.
void ChunkPreparer::addOwn(ArrayRef<Value> own, Values &sums) {
  Value first = b.mul(inQuad, 2);
  for (int64_t bottom : {0, 1}) {
    Value sum = lifted(b.sumLanes(own[bottom], {1, 2}));
    for (int64_t i : {0, 1}) {
      Value onDiagonal = b.equal(b.add(first, i), quad);
      Value &to = sums[(bottom ? kBottom : kTop)[1] + i];
      to = b.addF(to, roles.select(onDiagonal, sum, b.f32(0)));
    }
  }
}

/// x + a of an element from its quarter's start on instead, for rows quad.
Value ChunkPreparer::fromQuarter(Value anchored) {
  Value start = b.addF(b.shuffle(anchored, b.add(inQuad, 12)), b.f32(-kAnchor));
  Value isLate = b.less(b.i32(3), quad);
  return b.addF(anchored, b.negF(roles.select(isLate, start, b.f32(0))));
}

/// Adds the products of far elements of rows 4-7 with rows of their half, from
/// anchors at row 3: the columns of rows 0-3 go without a, so that their sums
/// are too large by it.
void ChunkPreparer::addQuarters(ArrayRef<Value> anchored, Values &sums) {
  rememberNorms();
  Value keys = parts.keyRows, queries = parts.queryRows, zero = b.f32(0);
  readLoads(keys, /*tokens=*/false);
  readLoads(queries, /*tokens=*/false);
  Value isLate = b.less(b.i32(3), quad), lastEarly = b.add(inQuad, 12);
  Value anchor = roles.select(isLate, b.f32(kAnchor), zero);
  Value weight = roles.select(b.less(inQuad, b.i32(2)),
                              b.f32(std::exp2(-kAnchor)), b.f32(1));
  weight = roles.select(isLate, weight, zero);
  for (int64_t bottom : {0, 1}) {
    Values left, right;
    for (int64_t part : {bottom, 2 + bottom}) {
      Values up, down;
      for (int64_t i : {0, 1}) {
        Value own = anchored[2 * part + i];
        Value x = b.addF(own, b.negF(b.shuffle(own, lastEarly)));
        x = b.addF(x, anchor);
        x = roles.select(isNear(x), x, b.f32(kFar));
        Value isDone =
            arith::OrIOp::create(b, isNear(own), b.less(quad, b.i32(4)));
        up.push_back(roles.select(isDone, zero, lifted(b.exp2(x))));
        down.push_back(b.exp2(b.negF(x)));
      }
      Values k =
          scaled(at.evaluate(keys, rowPairs(part)), /*ofKeys=*/true, bottom);
      Values q = scaled(at.evaluate(queries, rowPairs(part)), /*ofKeys=*/false,
                        bottom);
      for (const Values &rows : {times(k, up), times(q, up)})
        left.push_back(word(rows[0], rows[1], bf16()));
      Values row = times(k, down);
      right.push_back(word(row[0], row[1], bf16()));
    }
    Values products(4, zero);
    multiply(products, left, right[0], right[1], bf16());
    for (int64_t i = hasSystem() ? 0 : 2; i < 4; ++i) {
      Value &sum = sums[(bottom ? kBottom : kTop)[i / 2] + i % 2];
      sum = b.fma(products[i], weight, sum);
    }
  }
}

/// Adds the products of elements that are far from their quarter's start.
/// Rows that differ in bit h of their number, and in none above it, meet at the
/// last row before the later one's group of h: one exponent a row and turn.
void ChunkPreparer::halve(ArrayRef<Value> anchored, Values &sums) {
  Value keys = parts.keyRows, queries = parts.queryRows;
  Value zero = b.i32(0);
  roles.loop(zero, b.i32(2), 1, sums, [&](Value turn, Values &sums) {
    rememberNorms();
    readLoads(keys, /*tokens=*/false);
    readLoads(queries, /*tokens=*/false);
    Value h = arith::ShRUIOp::create(b, b.i32(2), turn);
    Value below = b.add(h, -1);
    Value isLater = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne, arith::AndIOp::create(b, quad, h), zero);
    // The last row before the group of h, or the last row of it.
    Value last = arith::OrIOp::create(b, quad, below);
    Value anchor =
        roles.select(isLater, arith::SubIOp::create(b, last, h), last);
    Value from = b.add(b.mul(anchor, 4), inQuad);
    Values meets; // in columns 2 inQuad and the next, or 0
    for (int64_t i : {0, 1}) {
      Value column = b.add(b.mul(inQuad, 2), i);
      Value above = arith::AndIOp::create(b, b.bitXor(quad, column),
                                          b.bitXor(below, b.i32(-1)));
      Value inPair =
          arith::CmpIOp::create(b, arith::CmpIPredicate::eq, above, h);
      inPair = arith::AndIOp::create(b, inPair, isLater);
      meets.push_back(roles.select(inPair, b.f32(std::exp2(kLift)), b.f32(0)));
    }
    for (int64_t bottom : {0, 1}) {
      Values rows, columns;
      for (int64_t part : {bottom, 2 + bottom}) {
        Values factor;
        for (int64_t i : {0, 1}) {
          Value own = anchored[2 * part + i];
          Value difference = b.addF(own, b.negF(b.shuffle(own, from)));
          Value isDone =
              arith::AndIOp::create(b, isLater, isNear(fromQuarter(own)));
          Value power = b.exp2(b.negF(LLVM::FAbsOp::create(b, difference)));
          factor.push_back(roles.select(isDone, b.f32(0), power));
        }
        for (Value source : {keys, queries}) {
          Values row = scaled(at.evaluate(source, rowPairs(part)),
                              source == keys, bottom);
          rows.push_back(word(b.mulF(row[0], factor[0]),
                              b.mulF(row[1], factor[1]), bf16()));
        }
        columns.push_back(rows[rows.size() - 2]);
      }
      Values products(4, b.f32(0));
      multiply(products, rows, columns[0], columns[1], bf16());
      for (int64_t i = hasSystem() ? 0 : 2; i < 4; ++i) {
        Value &sum = sums[(bottom ? kBottom : kTop)[i / 2] + i % 2];
        sum = b.fma(products[i], meets[i % 2], sum);
      }
    }
  });
}

/// i1: an element of the slice is far by these exponents.
Value ChunkPreparer::anyFar(ArrayRef<Value> exponents) {
  Value smallest = exponents[0];
  for (Value other : exponents.drop_front())
    smallest = arith::MinNumFOp::create(b, smallest, other);
  return b.anyLane(arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, smallest,
                                         b.f32(kNear)));
}

/// x + a of the present slice.
ChunkPreparer::Values ChunkPreparer::anchoredDecays(Values &x) {
  Value input, factors = tokenFactors(input), zero = b.i32(0);
  Values words = decays(input);
  x = sumDecays({sumWord(factors, 0), zero, zero, sumWord(factors, 8)}, words);
  Values anchored;
  for (Value sum : x)
    anchored.push_back(b.addF(sum, b.f32(kAnchor)));
  return anchored;
}

/// i1: an element is near.
Value ChunkPreparer::isNear(Value anchored) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, anchored,
                               b.f32(kNear));
}

/// What the log-decays are but for a factor of each token, such as 0 past the
/// sequence's end; returns the factors or null. They move into the matrix that
/// sums, which is the same in every slice.
Value ChunkPreparer::tokenFactors(Value &input) {
  Value factors;
  input = besideBroadcast(parts.decay.getInput(), 0, factors);
  if (input)
    return factors;
  input = parts.decay.getInput();
  return {};
}

/// Row quad of an 8 x 8 triangle of ones times the factors of the tokens from
/// `tokens` on, columns 2 inQuad and the next.
Value ChunkPreparer::sumWord(Value factors, int64_t tokens) {
  Values pair;
  for (int64_t i : {0, 1}) {
    Value column = b.add(b.mul(inQuad, 2), i);
    Value x = roles.select(b.less(column, b.add(quad, 1)),
                           b.f32(1 / sumScale()), b.f32(0));
    Group token;
    token.col = {firstToken, tokens + i};
    pair.push_back(factors ? b.mulF(x, at.evaluate(factors, token)[0]) : x);
  }
  return word(pair[0], pair[1], f16());
}

/// The sums of rows with their own half, after all slices.
void ChunkPreparer::lowerSums(Values &sums) {
  for (int64_t first : {kTop[0], kTop[1], kBottom[0], kBottom[1]})
    for (int64_t i : {first, first + 1})
      sums[i] = times(sums[i], b.f32(std::exp2(-kLift)));
}

void ChunkPreparer::unboundedSlice(Value slice, Values &sums) {
  enterSlice(slice);
  Values x, anchored = anchoredDecays(x);
  for (int64_t i : {2, 3, 6, 7})
    x[i] = b.addF(x[i], x[i - 2]);
  storeTotals(slice, x);
  roles.choose(
      anyFar(anchored), sums,
      [&](Values &sums) {
        addQuarters(anchored, sums);
        Values exponents;
        for (Value own : anchored)
          exponents.push_back(fromQuarter(own));
        roles.choose(
            anyFar(exponents), sums,
            [&](Values &sums) { halve(anchored, sums); }, [](Values &) {});
        anchoredSlice(anchored, /*isFar=*/true, sums);
      },
      [&](Values &sums) { anchoredSlice(anchored, /*isFar=*/false, sums); });
}

} // namespace kdac
