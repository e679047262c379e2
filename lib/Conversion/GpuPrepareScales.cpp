// Rows that nobody normalised, under decays of their own for every channel: a
// power of two for every row keeps the factors of products in range, as a norm
// would. It is exact, so that products are those of the rows themselves.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

static constexpr int64_t kExponent = 0x7f800000; ///< of f32; the bits below it
static constexpr int64_t kMantissaBits = 23;
/// Two factors whose exponents add up to this are 1 together.
static constexpr int64_t kInverse = 254 << kMantissaBits;

static Value bitsOf(GpuEmitter &b, Value x) {
  return arith::BitcastOp::create(b, b.getI32Type(), x);
}
static Value floatOf(GpuEmitter &b, Value bits) {
  return arith::BitcastOp::create(b, b.getF32Type(), bits);
}

/// 2^-e for the power of two 2^e.
static Value inverseOf(GpuEmitter &b, Value power) {
  Value bits = arith::SubIOp::create(b, b.i32(kInverse), bitsOf(b, power));
  return floatOf(b, bits);
}

/// Of row quad or quad + 8 (`half`). They wait in the table that this warp
/// fills after the slices: registers are short in these.
Value ChunkPreparer::scaleAt(bool ofKeys, int64_t half) const {
  Value table = b.mul(b.bitXor(block, b.i32(1)), layout.down - layout.up);
  Value row = b.mul(quad, 4);
  return scratchAt(layout.up, b.add(table, row), (ofKeys ? 0 : 64) + 32 * half);
}

Value ChunkPreparer::scaleOf(bool ofKeys, int64_t half) const {
  return b.load(scaleAt(ofKeys, half), b.getF32Type(), 1, 4)[0];
}

/// With its scale the largest element of a row of keys or queries lies in
/// [1/2, 1), or below 4 from 2^126 on.
void ChunkPreparer::findScales() {
  Values largest(4, b.f32(0)), none;
  roles.loop(
      b.i32(0), b.i32(slices), 1, largest, [&](Value slice, Values &largest) {
        enterSlice(slice);
        for (auto [i, rows] :
             {std::pair(0, parts.keyRows), std::pair(2, parts.queryRows)}) {
          readLoads(rows, /*tokens=*/false);
          for (int64_t part = 0; part < 4; ++part)
            for (Value x : at.evaluate(rows, rowPairs(part))) {
              Value &most = largest[i + part % 2];
              most =
                  arith::MaxNumFOp::create(b, most, LLVM::FAbsOp::create(b, x));
            }
        }
      });
  for (auto [i, found] : llvm::enumerate(largest)) {
    Value most = found;
    for (int64_t mask : {1, 2}) {
      Value other = b.shuffle(most, b.bitXor(at.lane, b.i32(mask)));
      most = arith::MaxNumFOp::create(b, most, other);
    }
    Value exponent = b.bitAnd(bitsOf(b, most), kExponent);
    Value bits = arith::SubIOp::create(
        b, b.i32(kInverse - (1 << kMantissaBits)), exponent);
    bits = arith::MaxSIOp::create(b, bits, b.i32(1 << kMantissaBits));
    b.store({floatOf(b, bits)}, scaleAt(i < 2, i % 2), b.getF32Type(), 4);
  }
}

ChunkPreparer::Values ChunkPreparer::scaled(const Values &x, bool ofKeys,
                                            int64_t bottom) {
  if (!scalesRows())
    return x;
  return times(x, Values(x.size(), scaleOf(ofKeys, bottom)));
}

/// A pair of bf16 in a row of keys or queries without the row's scale, which is
/// exact.
Value ChunkPreparer::unscaled(Value pair, bool ofKeys, int64_t bottom) {
  if (!scalesRows())
    return pair;
  Value inverse = inverseOf(b, scaleOf(ofKeys, bottom));
  return b.mulPairs(pair, word(inverse, inverse, bf16()), bf16());
}

/// The products of a block's own rows are those of scaled ones. What they lack
/// comes in two halves, or one alone might leave the range of f32.
void ChunkPreparer::unscaleSums(Values &sums) {
  auto exponentOf = [&](Value power) {
    return b.shiftRight(bitsOf(b, power), kMantissaBits);
  };
  auto power = [&](Value exponent) {
    return floatOf(b, b.shiftLeft(b.add(exponent, 127), kMantissaBits));
  };
  auto unscale = [&](int64_t first, Value row, Value columns) {
    for (int64_t i : {0, 1}) {
      Value column = b.shuffle(columns, b.add(b.mul(inQuad, 8), 4 * i));
      Value both = b.add(exponentOf(row), exponentOf(column));
      Value lacks = arith::SubIOp::create(b, b.i32(254), both);
      Value half = arith::ShRSIOp::create(b, lacks, b.i32(1));
      Value rest = arith::SubIOp::create(b, lacks, half);
      sums[first + i] = times(times(sums[first + i], power(half)), power(rest));
    }
  };
  Value columns[] = {scaleOf(true, 0), scaleOf(true, 1)};
  Value rows[] = {scaleOf(false, 0), scaleOf(false, 1)};
  // As boundedSlice orders them, of queries and of keys.
  unscale(4, rows[0], columns[0]);
  unscale(6, rows[1], columns[0]);
  unscale(10, rows[1], columns[1]);
  if (!hasSystem())
    return;
  unscale(0, columns[0], columns[0]);
  unscale(2, columns[1], columns[0]);
  unscale(8, columns[1], columns[1]);
}

} // namespace kdac
