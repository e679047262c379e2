// Slices whose log-decays nothing bounds, in three ways; what is seen at run
// time decides. With L the log-decay from before the block's first row:
//
// * |L| of the whole block fits the exponents of f32 and bf16: one anchor, as
// with
//   a bound.
// * What the rows 0-7 decay by after row 0 fits, and rows 8-15 alike. x is L
// less
//   the middle between the first and the last row's; tensor cores sum it
//   directly. 2^x and 2^-x serve the products of rows of one half, and every
//   other exponent is at most 0.
// * Else halves are cut in two again and again (docs/decisions/0003), and no
//   exponent is above 0. Such slices wait for a loop of their own: what they
//   need takes no registers from the others.
//
// Rows 8-15 meet rows 0-7 at row 7 in both of the latter.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Log-decays down to -300 are summed by tensor cores as f16 scaled by 2^7.
static constexpr double kSumScale = 128.0;

/// The largest exponent of two factors 2^x and 2^-y whose product is at most 1:
/// a left one flushed to zero below 2^-126 costs at most 2^-11 of a right one
/// (docs/NUMERICS.md, 3.3).
static constexpr double kLargestExponent = 115.0;

/// Rows of two columns of a slice, with L from the block's start and m that of
/// row 7.
struct ChunkPreparer::HalfRows {
  Values keys, queries; ///< rows quad: k, q times 2^L
  Values before, after; ///< k 2^(m-L) of rows quad, k 2^(L-m) of quad + 8
  Values asked, rest;   ///< of rows quad + 8: q 2^(L-m), k 2^(tot-L)
  Values first, second; ///< 2^m, 2^(tot-m)
};

/// Keys of rows 0-7 times 2^(m-L); keys and queries of rows 8-15 times 2^(L-m).
struct ChunkPreparer::SliceWords {
  Values before, after, asked;
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

/// The fragments of the slice's columns 0-7 or 8-15 (half 0, 1): what the image
/// takes replaces the raw rows at once.
void ChunkPreparer::place(int64_t half, const HalfRows &rows, SliceWords &to) {
  Value columns = ownHalf(half);
  auto rounded = [&](const Values &x) { return word(x[0], x[1], bf16()); };
  to.asked.push_back(rounded(rows.asked));
  to.after.push_back(rounded(rows.after));
  to.before.push_back(rounded(rows.before));
  putFragment(parts.queries, columns,
              {rounded(rows.queries), rounded(times(rows.asked, rows.first))});
  putFragment(parts.remaining, columns,
              {rounded(times(rows.before, rows.second)), rounded(rows.rest)});
  putFragment(parts.keys, columns,
              {rounded(rows.keys), rounded(times(rows.after, rows.first))});
}

/// Sums of rows 0-7, of rows 8-15 with columns 0-7, and of rows 8-15.
static constexpr int64_t kTop[] = {0, 4}, kLower[] = {2, 6},
                         kBottom[] = {8, 10};

/// sums += left (keys in rows 0-7, queries in rows 8-15) times right.
void ChunkPreparer::addProducts(ArrayRef<int64_t> to, ValueRange left,
                                Value right0, Value right1, Values &sums) {
  Values some;
  for (int64_t first : to)
    some.append({sums[first], sums[first + 1]});
  multiply(some, left, right0, right1, bf16());
  for (int64_t i = 0; i < 4; ++i)
    sums[to[i / 2] + i % 2] = some[i];
}

/// Rows 8-15 against rows 0-7.
void ChunkPreparer::finish(const SliceWords &words, Values &sums) {
  addProducts(kLower,
              {words.after[0], words.asked[0], words.after[1], words.asked[1]},
              words.before[0], words.before[1], sums);
}

/// No |x| is above kLargestExponent.
void ChunkPreparer::twoAnchors(ArrayRef<Value> fromStart, ArrayRef<Value> x,
                               Values &sums) {
  rememberNorms();
  Value keys = parts.keyRows, queries = parts.queryRows;
  readLoads(keys, /*tokens=*/false);
  readLoads(queries, /*tokens=*/false);
  Value lastRow = b.add(inQuad, 28);
  SliceWords words;
  Values left, right, asked;
  for (int64_t half : {0, 1}) {
    HalfRows rows;
    Values middle; // L of row 7
    for (int64_t i : {0, 1})
      middle.push_back(b.shuffle(fromStart[4 * half + i], lastRow));
    for (int64_t bottom : {0, 1}) {
      int64_t part = 2 * half + bottom;
      Values up, down, toLast, outer;
      for (int64_t i : {0, 1}) {
        up.push_back(b.exp2(x[2 * part + i]));
        down.push_back(b.exp2(b.negF(x[2 * part + i])));
        toLast.push_back(b.shuffle(up[i], lastRow));
        Value exponent = fromStart[2 * part + i];
        if (bottom)
          exponent = b.addF(exponent, b.negF(middle[i]));
        outer.push_back(b.exp2(exponent));
      }
      Values k = at.evaluate(keys, rowPairs(part));
      Values q = at.evaluate(queries, rowPairs(part));
      Values kUp = times(k, up), kDown = times(k, down), qUp = times(q, up);
      left.push_back(word(kUp[0], kUp[1], bf16()));
      right.push_back(word(kDown[0], kDown[1], bf16()));
      asked.push_back(word(qUp[0], qUp[1], bf16()));
      (bottom ? rows.after : rows.keys) = times(k, outer);
      (bottom ? rows.asked : rows.queries) = times(q, outer);
      (bottom ? rows.rest : rows.before) = times(kDown, toLast);
      for (int64_t i : {0, 1})
        if (bottom)
          rows.second.push_back(b.shuffle(outer[i], lastRow));
        else
          rows.first.push_back(b.exp2(middle[i]));
    }
    place(half, rows, words);
  }
  for (int64_t bottom : {0, 1})
    addProducts(
        bottom ? kBottom : kTop,
        {left[bottom], asked[bottom], left[2 + bottom], asked[2 + bottom]},
        right[bottom], right[2 + bottom], sums);
  finish(words, sums);
}

/// Adds the products within the halves. Rows that differ in bit h of their
/// number, and in none above it, meet at the last row before the later one's
/// group of h: one exponent a row and turn.
void ChunkPreparer::halve(ArrayRef<Value> x, Values &sums) {
  Value keys = parts.keyRows, queries = parts.queryRows;
  Value zero = b.i32(0);
  roles.loop(zero, b.i32(3), 1, sums, [&](Value turn, Values &sums) {
    rememberNorms();
    readLoads(keys, /*tokens=*/false);
    readLoads(queries, /*tokens=*/false);
    Value h = arith::ShRUIOp::create(b, b.i32(4), turn);
    Value below = b.add(h, -1);
    Value isLater = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne, arith::AndIOp::create(b, quad, h), zero);
    // The last row before the group of h, or the last row of it.
    Value last = arith::OrIOp::create(b, quad, below);
    Value anchor =
        roles.select(isLater, arith::SubIOp::create(b, last, h), last);
    Value from = b.add(b.mul(anchor, 4), inQuad);
    Value sign = roles.select(isLater, b.f32(1), b.f32(-1));
    Values meets; // in columns 2 inQuad and the next
    for (int64_t i : {0, 1}) {
      Value column = b.add(b.mul(inQuad, 2), i);
      Value above = arith::AndIOp::create(b, b.bitXor(quad, column),
                                          b.bitXor(below, b.i32(-1)));
      Value inPair =
          arith::CmpIOp::create(b, arith::CmpIPredicate::eq, above, h);
      meets.push_back(arith::AndIOp::create(b, inPair, isLater));
    }
    for (int64_t bottom : {0, 1}) {
      Values rows, columns;
      for (int64_t part : {bottom, 2 + bottom}) {
        Values factor;
        for (int64_t i : {0, 1}) {
          Value own = x[2 * part + i];
          Value difference = b.addF(own, b.negF(b.shuffle(own, from)));
          factor.push_back(b.exp2(times(difference, sign)));
        }
        for (Value source : {keys, queries}) {
          Values row = at.evaluate(source, rowPairs(part));
          rows.push_back(word(b.mulF(row[0], factor[0]),
                              b.mulF(row[1], factor[1]), bf16()));
        }
        columns.push_back(rows[rows.size() - 2]);
      }
      Values products(4, b.f32(0));
      multiply(products, rows, columns[0], columns[1], bf16());
      for (int64_t i = 0; i < 4; ++i) {
        Value &sum = sums[(bottom ? kBottom : kTop)[i / 2] + i % 2];
        sum = b.addF(sum, roles.select(meets[i % 2], products[i], b.f32(0)));
      }
    }
  });
}

/// Any log-decays. Here x is L less half the total of the row's half, so that
/// its last row has all that is needed.
void ChunkPreparer::farSlice(Value slice, Values &sums) {
  enterSlice(slice);
  Value input, factors = tokenFactors(input), zero = b.i32(0);
  Values words = decays(input, kSumScale);
  Values x = sumDecays({sumWord(factors, 0, 0.5, -0.5), zero, zero,
                        sumWord(factors, 8, 0.5, -0.5)},
                       words);
  halve(x, sums);
  rememberNorms();
  Value keys = parts.keyRows, queries = parts.queryRows;
  Value lastRow = b.add(inQuad, 28);
  SliceWords edges;
  Values own(2, b.f32(0)); // of a row's query with its own key
  for (int64_t half : {0, 1}) {
    readLoads(keys, /*tokens=*/false, half);
    readLoads(queries, /*tokens=*/false, half);
    HalfRows rows;
    for (int64_t bottom : {0, 1}) {
      int64_t part = 2 * half + bottom;
      Values k = at.evaluate(keys, rowPairs(part));
      Values q = at.evaluate(queries, rowPairs(part));
      Values up, down, total;
      for (int64_t i : {0, 1}) {
        own[bottom] = b.fma(q[i], k[i], own[bottom]);
        Value exponent = x[2 * part + i];
        Value last = b.shuffle(exponent, lastRow);
        up.push_back(b.exp2(b.addF(exponent, last)));
        down.push_back(b.exp2(b.addF(last, b.negF(exponent))));
        total.push_back(b.exp2(b.addF(last, last)));
      }
      (bottom ? rows.after : rows.keys) = times(k, up);
      (bottom ? rows.rest : rows.before) = times(k, down);
      (bottom ? rows.asked : rows.queries) = times(q, up);
      (bottom ? rows.second : rows.first) = total;
    }
    place(half, rows, edges);
  }
  for (int64_t bottom : {0, 1}) {
    Value sum = b.sumLanes(own[bottom], {1, 2});
    for (int64_t i : {0, 1}) {
      Value onDiagonal = b.equal(b.add(b.mul(inQuad, 2), i), quad);
      Value &to = sums[(bottom ? kBottom : kTop)[1] + i];
      to = b.addF(to, roles.select(onDiagonal, sum, b.f32(0)));
    }
  }
  finish(edges, sums);
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

/// Row quad of an 8 x 8 triangle times the factors of the tokens from `tokens`
/// on, columns 2 inQuad and the next: `below` up to the diagonal, else `above`.
Value ChunkPreparer::sumWord(Value factors, int64_t tokens, double below,
                             double above, bool skipsFirst) {
  Values pair;
  for (int64_t i : {0, 1}) {
    Value column = b.add(b.mul(inQuad, 2), i);
    Value x = roles.select(b.less(column, b.add(quad, 1)),
                           b.f32(below / kSumScale), b.f32(above / kSumScale));
    if (skipsFirst && i == 0)
      x = roles.select(b.equal(inQuad, b.i32(0)), b.f32(0), x);
    Group token;
    token.col = {firstToken, tokens + i};
    pair.push_back(factors ? b.mulF(x, at.evaluate(factors, token)[0]) : x);
  }
  return word(pair[0], pair[1], f16());
}

/// i1: the magnitude of one of the exponents, in some lane, is too large for
/// factors on both sides.
Value ChunkPreparer::exceeds(ArrayRef<Value> exponents) {
  Value largest = b.f32(0);
  for (Value exponent : exponents)
    largest =
        arith::MaxNumFOp::create(b, largest, LLVM::FAbsOp::create(b, exponent));
  return b.anyLane(arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, largest,
                                         b.f32(kLargestExponent)));
}

/// The slices whose bits are set in `left`.
void ChunkPreparer::farSlices(Value left, Values &sums) {
  at.locateThread(b.opaqueThread(at.thread));
  locate();
  roles.loop(b.i32(0), b.i32(slices), 1, sums, [&](Value slice, Values &sums) {
    Value bit = b.bitAnd(arith::ShRUIOp::create(b, left, slice), 1);
    roles.choose(
        b.equal(bit, b.i32(1)), sums,
        [&](Values &sums) { farSlice(slice, sums); }, [](Values &) {});
  });
}

void ChunkPreparer::unboundedSlices(Values &sums) {
  Values carried = sums;
  carried.push_back(b.i32(0)); // a bit for every slice that is left
  roles.loop(
      b.i32(0), b.i32(slices), 1, carried, [&](Value slice, Values &carried) {
        enterSlice(slice);
        Value input, factors = tokenFactors(input), zero = b.i32(0);
        Values words = decays(input, kSumScale);
        Values fromStart =
            sumDecays({sumWord(factors, 0, 1, 0), sumWord(factors, 0, 1, 1),
                       zero, sumWord(factors, 8, 1, 0)},
                      words);
        storeTotals(slice, fromStart);
        auto general = [&](Values &carried) {
          auto within = [&](int64_t tokens) {
            return sumWord(factors, tokens, 0.5, -0.5, /*skipsFirst=*/true);
          };
          Values x = sumDecays({within(0), zero, zero, within(8)}, words);
          roles.choose(
              exceeds(x), carried,
              [&](Values &carried) {
                Value bit = arith::ShLIOp::create(b, b.i32(1), slice);
                carried.back() = arith::OrIOp::create(b, carried.back(), bit);
              },
              [&](Values &carried) { twoAnchors(fromStart, x, carried); });
        };
        // The last row's are the largest.
        roles.choose(
            exceeds({fromStart[2], fromStart[3], fromStart[6], fromStart[7]}),
            carried, general,
            [&](Values &carried) { oneAnchor(fromStart, carried); });
      });
  Value left = carried.pop_back_val();
  Value isAny =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, left, b.i32(0));
  Value thread = at.thread;
  roles.choose(
      isAny, carried, [&](Values &sums) { farSlices(left, sums); },
      [](Values &) {});
  // Where things are is computed anew rather than kept around the slices.
  at.locateThread(b.opaqueThread(thread));
  locate();
  sums = carried;
}

} // namespace kdac
