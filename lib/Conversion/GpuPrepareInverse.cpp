// The inverse of a chunk's system: the diagonal blocks by substitution in f32,
// the block below them by two products.
//
// Keys of length 1 keep the blocks at a few units, which f16 holds with three
// bits more than bf16. Longer ones may make them anything: tf32 has as many
// bits, and f32's range.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

/// Bytes from one column of a block to the next, in f32.
static constexpr int64_t kWideColumn = 4 * tile::kRoleBlock;

bool ChunkPreparer::isWideInverse() const { return !roles.hasUnitKeys(); }

/// Column lane % 16 of a diagonal block of the inverse, for the block below.
void ChunkPreparer::storeColumn(ArrayRef<Value> x) {
  Value to = b.mul(at.lane, 32);
  for (int64_t i = 0; i < 16; i += 8)
    b.store(x.slice(i, 8), scratchAt(layout.inverse, to, 2 * i), f16(), 16);
}

/// The same in f32: the first block in the place of both narrow ones, the
/// second where its system was, which its own warp will replace.
void ChunkPreparer::storeWideColumn(ArrayRef<Value> x) {
  Value isFirst = b.less(at.lane, b.i32(16));
  Value block = roles.select(isFirst, b.i32(layout.inverse),
                             b.i32(layout.diagonal + layout.diagonalBytes));
  Value to = b.add(block, b.mul(b.rem(at.lane, 16), kWideColumn));
  b.warpSync(); // all have read it
  for (int64_t i = 0; i < 16; i += 4)
    b.store(x.slice(i, 4), scratchAt(4 * i, to), tf32(), 16);
}

/// Both diagonal blocks of the inverse by forward substitution: half a warp a
/// block, a lane a column. Times the strengths they are the system's;
/// transposed they go to the scratch for the block below them.
void ChunkPreparer::invertDiagonal() {
  Value column = b.rem(at.lane, 16), half = b.div(at.lane, 16);
  Value from = b.mul(half, layout.diagonalBytes);
  Values x;
  for (int64_t i = 0; i < 16; ++i) {
    Value onDiagonal = b.equal(column, b.i32(i));
    // Two partial sums shorten the chain of dependent additions.
    Values partial = {roles.select(onDiagonal, b.f32(1), b.f32(0)), b.f32(0)};
    Values row;
    for (int64_t j = 0; j < i; ++j) {
      if (j % 4 == 0)
        row = b.load(scratchAt(layout.diagonal, from, i * 64 + j * 4),
                     b.getF32Type(), 4, 16);
      Value negative = b.negF(row[j % 4]);
      partial[j % 2] = b.fma(negative, x[j], partial[j % 2]);
    }
    x.push_back(i < 2 ? partial[0] : b.addF(partial[0], partial[1]));
    if (i == 1) // its one term went to the first sum
      x.back() = partial[0];
  }
  isWideInverse() ? storeWideColumn(x) : storeColumn(x);
  Value strength =
      b.load(strengthsAt(b.mul(at.lane, 4)), b.getF32Type(), 1, 4)[0];
  tile::PlaceAttr place = at.place(parts.system);
  Value unit = b.add(b.mul(half, 2), b.div(column, 8));
  Value base =
      b.add(b.add(buffer, b.mul(half, 2048)), b.mul(b.rem(column, 8), 2));
  for (int64_t i = 0; i < 16; ++i) {
    Value swizzled = b.shiftLeft(b.bitXor(unit, b.i32(i % 8)), 4);
    b.store({b.mulF(x[i], strength)},
            roles.pointer(b.add(base, swizzled), place.getOffset() + i * 128),
            bf16(), 2);
  }
  if (!roles.isRefined())
    return;
  // The chain applies the diagonal itself: column c has it in row c.
  Value row = b.rem(column, 8);
  Value swizzled = b.shiftLeft(b.bitXor(unit, row), 4);
  Value diagonal = b.add(b.add(base, swizzled), b.mul(column, 128));
  b.store({b.f32(0)}, roles.pointer(diagonal, place.getOffset()), bf16(), 2);
}

/// N_10 as right operands of products: the lower block's products of keys, as
/// accumulators hold them, times the write strengths.
ChunkPreparer::Values ChunkPreparer::lowerSystem(ArrayRef<Value> sums) {
  Value strengths[] = {rowStrength(16), rowStrength(24)};
  Values words;
  for (int64_t i = 0; i < 8; i += 2) {
    Value strength = strengths[i / 2 % 2];
    Value x = b.mulF(sums[i], strength), y = b.mulF(sums[i + 1], strength);
    if (isWideInverse())
      words.append({b.toTF32(x), b.toTF32(y)});
    else
      words.push_back(word(x, y, f16()));
  }
  return words;
}

/// -(X_11 N_10 X_00), transposed: accumulators of one product are the left
/// operand of the next.
ChunkPreparer::Values ChunkPreparer::lowerProducts(const Values &lower) {
  Value row =
      b.add(b.mul(b.rem(at.lane, 16), 32), b.mul(b.div(at.lane, 16), 16));
  Values left = b.ldmatrix(scratchAt(layout.inverse, row), 4, false);
  Values right = b.ldmatrix(scratchAt(layout.inverse, row, 512), 4, true);
  Values inner(8, b.f32(0)), result(8, b.f32(0));
  auto all = MutableArrayRef<Value>(inner);
  multiply(all.slice(0, 4), left, lower[0], lower[2], f16());
  multiply(all.slice(4, 4), left, lower[1], lower[3], f16());
  Values middle;
  for (int64_t i = 0; i < 8; i += 2)
    middle.push_back(word(b.negF(inner[i]), b.negF(inner[i + 1]), f16()));
  auto out = MutableArrayRef<Value>(result);
  multiply(out.slice(0, 4), middle, right[0], right[1], f16());
  multiply(out.slice(4, 4), middle, right[2], right[3], f16());
  return result;
}

/// The same in tf32, 8 terms of a sum at a time: the i-th and the (i + 4)-th
/// are those of columns 2 i and 2 i + 1, on either side.
ChunkPreparer::Values ChunkPreparer::wideLowerProducts(const Values &lower) {
  Values inner(8, b.f32(0)), result(8, b.f32(0));
  auto all = MutableArrayRef<Value>(inner);
  Value column = b.add(b.mul(quad, kWideColumn), b.mul(inQuad, 8));
  for (int64_t half : {0, 1}) {
    Values left;
    for (int64_t i : {0, 1})
      for (int64_t bottom : {0, 1})
        left.push_back(
            loadWord(scratchAt(layout.inverse, column,
                               8 * bottom * kWideColumn + 32 * half + 4 * i)));
    for (int64_t rows : {0, 1})
      multiply(all.slice(4 * rows, 4), left, lower[4 * half + 2 * rows],
               lower[4 * half + 2 * rows + 1], tf32());
  }
  auto out = MutableArrayRef<Value>(result);
  Value row = b.add(b.mul(inQuad, 2 * kWideColumn), b.mul(quad, 4));
  for (int64_t half : {0, 1}) {
    Values left;
    for (int64_t i : {0, 2, 1, 3})
      left.push_back(b.toTF32(b.negF(inner[4 * half + i])));
    for (int64_t columns : {0, 1}) {
      Values right;
      for (int64_t i : {0, 1})
        right.push_back(
            loadWord(scratchAt(layout.diagonal + layout.diagonalBytes, row,
                               (8 * half + i) * kWideColumn + 32 * columns)));
      multiply(out.slice(4 * columns, 4), left, right[0], right[1], tf32());
    }
  }
  return result;
}

/// X_10 times the write strengths, into the image.
void ChunkPreparer::lowerInverse(const Values &lower) {
  Values result =
      isWideInverse() ? wideLowerProducts(lower) : lowerProducts(lower);
  Value atRow = rowStrength(0), at8 = rowStrength(8);
  auto pairOf = [&](int64_t i, Value factor) {
    return word(b.mulF(result[i], factor), b.mulF(result[i + 1], factor),
                bf16());
  };
  b.stmatrix(
      roles.pointer(b.add(buffer, tileRow)),
      {pairOf(0, atRow), pairOf(4, atRow), pairOf(2, at8), pairOf(6, at8)},
      true, at.place(parts.system).getOffset() + 2048);
}

} // namespace kdac
