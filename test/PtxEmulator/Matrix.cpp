// ldmatrix, stmatrix and mma.sync.
#include "Lanes.h"
#include "Numbers.h"

namespace kdac::ptx {

namespace {

constexpr unsigned side = 8; ///< rows and columns of a matrix of ldmatrix

/// ops: n registers, base. kind 1: transposed. vector: n.
void loadMatrices(Warp &w, const Instruction &i, uint32_t) {
  Ref base = i.ops[i.vector];
  for (unsigned m = 0; m < i.vector; ++m) {
    uint16_t tile[side][side];
    for (unsigned row = 0; row < side; ++row) {
      unsigned lane = m * side + row;
      const uint8_t *from =
          access(w, lane, i.space, addressOf(w, i, base, lane), 16,
                 i.peeks ? Access::Peek : Access::Read);
      if (!from)
        return;
      std::memcpy(tile[row], from, 16);
    }
    uint32_t *d = target<uint32_t>(w, i.ops[m]);
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      unsigned row = lane / 4, col = lane % 4 * 2;
      d[lane] = i.kind ? tile[col][row] | uint32_t(tile[col + 1][row]) << 16
                       : tile[row][col] | uint32_t(tile[row][col + 1]) << 16;
    }
  }
}

/// ops: base, n registers.
void storeMatrices(Warp &w, const Instruction &i, uint32_t) {
  ++w.cta->cluster.effects;
  for (unsigned m = 0; m < i.vector; ++m) {
    uint16_t tile[side][side];
    const uint32_t *a = source<uint32_t>(w, i.ops[m + 1]);
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      unsigned row = lane / 4, col = lane % 4 * 2;
      uint16_t low = uint16_t(a[lane]), high = uint16_t(a[lane] >> 16);
      (i.kind ? tile[col][row] : tile[row][col]) = low;
      (i.kind ? tile[col + 1][row] : tile[row][col + 1]) = high;
    }
    for (unsigned row = 0; row < side; ++row) {
      unsigned lane = m * side + row;
      uint8_t *to = access(w, lane, i.space, addressOf(w, i, i.ops[0], lane),
                           16, Access::Write);
      if (!to)
        return;
      std::memcpy(to, tile[row], 16);
    }
  }
}

bool matrixForm(Decoder &d) {
  d.inst.vector = d.take("x4") ? 4 : d.take("x2") ? 2 : d.take("x1") ? 1 : 0;
  d.inst.kind = d.take("trans");
  d.inst.converge = Converge::Warp;
  d.setSpace();
  return d.inst.space != Space::Cluster && d.takeType() == Type::B16 &&
         d.take("sync") && d.take("aligned") && d.take("m8n8") &&
         d.inst.vector && d.done();
}
bool registers(Decoder &d, const Operand &op, bool isDestination) {
  if (op.kind == Operand::List)
    return op.parts.size() == d.inst.vector &&
           d.list(op, Type::B32, isDestination, true);
  return d.inst.vector == 1 && (isDestination ? d.destination(op, Type::B32)
                                              : d.value(op, Type::B32));
}
bool decodeLoadMatrix(Decoder &d) {
  d.inst.run = loadMatrices;
  d.inst.isLoad = true;
  const auto &ops = d.statement().operands;
  return matrixForm(d) && d.arity(2) && registers(d, ops[0], true) &&
         d.address(ops[1]);
}
bool decodeStoreMatrix(Decoder &d) {
  d.inst.run = storeMatrices;
  const auto &ops = d.statement().operands;
  return matrixForm(d) && d.arity(2) && d.address(ops[0]) &&
         registers(d, ops[1], false);
}

/// movmatrix: a transposition through the warp.
void transposeMatrix(Warp &w, const Instruction &i, uint32_t) {
  uint16_t tile[side][side];
  const uint32_t *a = source<uint32_t>(w, i.ops[1]);
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    tile[lane / 4][lane % 4 * 2] = uint16_t(a[lane]);
    tile[lane / 4][lane % 4 * 2 + 1] = uint16_t(a[lane] >> 16);
  }
  uint32_t *d = target<uint32_t>(w, i.ops[0]);
  for (unsigned lane = 0; lane < warpSize; ++lane)
    d[lane] = tile[lane % 4 * 2][lane / 4] |
              uint32_t(tile[lane % 4 * 2 + 1][lane / 4]) << 16;
}
bool decodeMoveMatrix(Decoder &d) {
  const auto &ops = d.statement().operands;
  d.inst.run = transposeMatrix;
  d.inst.converge = Converge::Warp;
  return d.takeType() == Type::B16 && d.take("sync") && d.take("aligned") &&
         d.take("m8n8") && d.take("trans") && d.arity(2) &&
         d.destination(ops[0], Type::B32) && d.value(ops[1], Type::B32) &&
         d.done();
}

//===--- mma ----------------------------------------------------------------//

template <typename H> float element(uint32_t word, unsigned half) {
  return toFloat(halfOf<H>(word, half));
}

/// D = A B + C in registers, the first four operands being D's.
template <unsigned K>
void addProduct(Warp &w, const Instruction &i, const Ref *c,
                const float (&a)[16][K], const float (&b)[K][8]) {
  float sums[16][8] = {};
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < K; ++k)
      for (unsigned n = 0; n < 8; ++n)
        sums[m][n] += a[m][k] * b[k][n];
  for (unsigned r = 0; r < 4; ++r) {
    float *d = reinterpret_cast<float *>(place(w, i.ops[r]));
    auto *from = reinterpret_cast<const float *>(read(w, c[r]));
    for (unsigned lane = 0; lane < warpSize; ++lane)
      d[lane] = from[lane] + sums[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
  }
}

/// m16n8kK with 16-bit elements: ops: 4 d, K/4 a, K/8 b, 4 c. D = A B + C.
template <typename H, unsigned K>
void multiply16(Warp &w, const Instruction &i, uint32_t) {
  constexpr unsigned na = K / 4, nb = K / 8;
  float a[16][K], b[K][8];
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    unsigned g = lane / 4, t = lane % 4 * 2;
    for (unsigned r = 0; r < na; ++r)
      for (unsigned h = 0; h < 2; ++h)
        a[g + r % 2 * 8][t + r / 2 * 8 + h] =
            element<H>(source<uint32_t>(w, i.ops[4 + r])[lane], h);
    for (unsigned r = 0; r < nb; ++r)
      for (unsigned h = 0; h < 2; ++h)
        b[t + r * 8 + h][g] =
            element<H>(source<uint32_t>(w, i.ops[4 + na + r])[lane], h);
  }
  addProduct<K>(w, i, i.ops + 4 + na + nb, a, b);
}

/// m16n8kK with tf32: ops: 4 d, K/2 a, K/4 b, 4 c.
template <unsigned K>
void multiplyTF32(Warp &w, const Instruction &i, uint32_t) {
  constexpr unsigned na = K / 2, nb = K / 4;
  float a[16][K], b[K][8];
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    unsigned g = lane / 4, t = lane % 4;
    for (unsigned r = 0; r < na; ++r)
      a[g + r % 2 * 8][t + r / 2 * 4] =
          readTF32(source<uint32_t>(w, i.ops[4 + r])[lane]);
    for (unsigned r = 0; r < nb; ++r)
      b[t + r * 4][g] = readTF32(source<uint32_t>(w, i.ops[4 + na + r])[lane]);
  }
  addProduct<K>(w, i, i.ops + 4 + na + nb, a, b);
}

struct MmaRow {
  const char *shape, *element;
  Handler run;
  unsigned a, b;
};
constexpr MmaRow mmas[] = {
    {"m16n8k16", "bf16", multiply16<BF16, 16>, 4, 2},
    {"m16n8k16", "f16", multiply16<F16, 16>, 4, 2},
    {"m16n8k8", "bf16", multiply16<BF16, 8>, 2, 1},
    {"m16n8k8", "f16", multiply16<F16, 8>, 2, 1},
    {"m16n8k8", "tf32", multiplyTF32<8>, 4, 2},
    {"m16n8k4", "tf32", multiplyTF32<4>, 2, 1},
};

bool decodeMma(Decoder &d) {
  const auto &ops = d.statement().operands;
  if (!d.take("sync") || !d.take("aligned") || !d.take("row") ||
      !d.take("col") || !d.arity(4) || !d.take("f32") || !d.take("f32"))
    return false;
  d.inst.converge = Converge::Warp;
  for (const MmaRow &row : mmas)
    if (d.nextMod() && *d.nextMod() == row.shape &&
        d.statement().mods.end()[-2] == row.element) {
      d.take(row.shape);
      d.inst.run = row.run;
      d.inst.isMma = true;
      return d.take(row.element) && d.take(row.element) && d.done() &&
             ops[0].parts.size() == 4 && ops[1].parts.size() == row.a &&
             ops[2].parts.size() == row.b && ops[3].parts.size() == 4 &&
             d.list(ops[0], Type::F32, true, true) &&
             d.list(ops[1], Type::B32, false, true) &&
             d.list(ops[2], Type::B32, false, true) &&
             d.list(ops[3], Type::F32, false, true);
    }
  return false;
}

} // namespace

const std::vector<Opcode> &matrixOpcodes() {
  static const std::vector<Opcode> table = {
      {"ldmatrix", decodeLoadMatrix},
      {"stmatrix", decodeStoreMatrix},
      {"movmatrix", decodeMoveMatrix},
      {"mma", decodeMma},
  };
  return table;
}

} // namespace kdac::ptx
