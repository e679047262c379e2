// Blocks whose tokens decay as a whole, or not at all: a factor of each row,
// and of each element of the C x C products, which never exceeds 1.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Lane l's log-decay is that of row l % 16. Sums them from the block's first
/// row on, and leaves the block's total where the pair finds it.
void ChunkPreparer::sumTokens(Value decay) {
  Value row = b.rem(at.lane, 16);
  tokenSum = decay;
  for (int64_t before : {1, 2, 4, 8}) {
    Value other = b.shuffle(tokenSum, b.rem(b.add(at.lane, 32 - before), 32));
    Value isInside = b.less(b.i32(before - 1), row);
    tokenSum = b.addF(tokenSum, roles.select(isInside, other, b.f32(0)));
  }
  Value total = b.shuffle(tokenSum, b.i32(15));
  roles.branch(b.equal(at.lane, b.i32(0)), [&] {
    b.store({total}, scratchAt(layout.totals, b.mul(block, 4)), b.getF32Type(),
            4);
  });
  rowStart.clear();
  rowEnd.clear();
  for (int64_t half : {0, 8}) {
    Value sum = b.shuffle(tokenSum, b.add(quad, half));
    rowStart.push_back(b.exp2(sum));
    rowEnd.push_back(b.exp2(b.addF(total, b.negF(sum))));
  }
}

/// One slice: the image's rows, and the products of rows without their decays.
/// Rows that nothing changes are written as well: copied by other threads, they
/// would reach wgmma without a fence of those that wrote them.
void ChunkPreparer::rowSlice(Value slice, Values &sums) {
  enterSlice(slice);
  rememberNorms();
  readLoads(parts.keyRows, /*tokens=*/false);
  readLoads(parts.queryRows, /*tokens=*/false);
  Values key, query, keys, queries, remaining;
  auto scaled = [&](const Values &x, Value factor) {
    return word(b.mulF(x[0], factor), b.mulF(x[1], factor), bf16());
  };
  for (int64_t part = 0; part < 4; ++part) {
    Values k = at.evaluate(parts.keyRows, rowPairs(part));
    key.push_back(word(k[0], k[1], bf16()));
    Values q = at.evaluate(parts.queryRows, rowPairs(part));
    query.push_back(word(q[0], q[1], bf16()));
    if (!parts.decay)
      continue;
    keys.push_back(scaled(k, rowStart[part % 2]));
    remaining.push_back(scaled(k, rowEnd[part % 2]));
    queries.push_back(scaled(q, rowStart[part % 2]));
  }
  auto all = MutableArrayRef<Value>(sums);
  if (parts.inverse)
    multiply(all.slice(0, 4), key, key[0], key[2], bf16());
  multiply(all.slice(4, 4), query, key[0], key[2], bf16());
  Values lower = {key[1], query[1], key[3], query[3]};
  multiply(all.slice(8, 4), lower, key[1], key[3], bf16());
  if (parts.decay)
    putFragment(parts.remaining, own, remaining);
  if (parts.keys)
    putFragment(parts.keys, own, parts.decay ? keys : key);
  putFragment(parts.queries, own, parts.decay ? queries : query);
}

/// The products of a block times what their rows decay by in between.
void ChunkPreparer::decayDiagonal(Values &sums) {
  auto sumAt = [&](Value row) { return b.shuffle(tokenSum, row); };
  Value column = b.mul(inQuad, 2);
  for (int64_t rows : {0, 8}) {
    Value row = sumAt(b.add(quad, rows));
    for (int64_t columns = 0; columns <= rows; columns += 8)
      for (int64_t i : {0, 1}) {
        Value difference =
            b.addF(row, b.negF(sumAt(b.add(column, columns + i))));
        Value factor =
            b.exp2(arith::MinNumFOp::create(b, difference, b.f32(0)));
        // As boundedSlice orders them.
        int64_t keys = columns ? 8 : rows / 4,
                queries = columns ? 10 : keys + 4;
        for (int64_t first : {keys, queries})
          sums[first + i] = b.mulF(sums[first + i], factor);
      }
  }
}

/// What the other block decays by; the first warp also fills the chunk's total.
void ChunkPreparer::rowTotals(bool first) {
  auto total = [&](int64_t block) {
    return b.load(scratchAt(layout.totals, {}, block * 4), b.getF32Type(), 1,
                  4)[0];
  };
  Value other = total(first ? 1 : 0);
  otherBlock = b.exp2(other);
  if (!first)
    return;
  int64_t each = roles.keyDim() / 32;
  Values decay(each, b.exp2(b.addF(other, total(0))));
  Value offset = b.add(buffer, b.mul(at.lane, 4 * each));
  b.store(decay, roles.pointer(offset, at.place(parts.total).getOffset()),
          b.getF32Type(), 4 * each);
}

/// Both elements times what the other block decays by.
Value ChunkPreparer::timesOther(Value pair) {
  return word(b.mulF(b.unpack16(pair, false, bf16()), otherBlock),
              b.mulF(b.unpack16(pair, true, bf16()), otherBlock), bf16());
}

} // namespace kdac
