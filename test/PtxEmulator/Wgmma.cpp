// wgmma: products of a warpgroup, each warp's 16 rows by itself. They happen
// when they are issued or, with Options::late, when they are waited for.
#include "Lanes.h"
#include "Numbers.h"

#include <algorithm>

namespace kdac::ptx {

namespace {

/// A matrix in shared memory, as its descriptor says (PTX ISA, "Matrix
/// descriptor format"; layouts as in CUTLASS's mma_sm90_desc.hpp).
struct Descriptor {
  uint32_t start, leading, stride; ///< bytes
  unsigned swizzle;                ///< bits that are exchanged: 0 to 3
  bool kMajor;

  Descriptor(uint64_t bits, bool kMajor)
      : start(uint32_t(bits & 0x3fff) << 4),
        leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4), kMajor(kMajor) {
    constexpr unsigned swizzles[] = {0, 3, 2, 1};
    swizzle = swizzles[bits >> 62];
  }

  /// Address of 16-bit element (mn, k).
  uint32_t at(unsigned mn, unsigned k) const {
    unsigned row = 16u << swizzle; // bytes of a row of 8 that lie together
    uint32_t a = start;
    if (kMajor) {
      a += mn % 8 * row + mn / 8 * stride + k % 8 * 2;
      a += k / 8 * (swizzle ? 16 : leading);
    } else {
      unsigned unit = mn / 8, units = 1u << swizzle;
      a += mn % 8 * 2 + k % 8 * row + unit % units * 16;
      a += unit / units * (swizzle ? leading : stride);
      a += k / 8 * (swizzle ? stride : leading);
    }
    return a ^ ((a >> 7 & (units() - 1)) << 4);
  }
  unsigned units() const { return 1u << swizzle; }
};

/// f(address, row, column) for an mn x 16 panel's runs of 16 bytes along the
/// major direction, until f returns false.
template <typename F>
bool eachRun(const Descriptor &from, unsigned first, unsigned count, F f) {
  for (unsigned mn = 0; mn < count; mn += 8)
    for (unsigned k = 0; k < 16; k += 8)
      for (unsigned run = 0; run < 8; ++run) {
        unsigned row = mn + (from.kMajor ? run : 0);
        unsigned col = k + (from.kMajor ? 0 : run);
        if (!f(from.at(first + row, col), row, col))
          return false;
      }
  return true;
}

void markPanel(Warp &w, const Descriptor &from, unsigned first,
               unsigned count) {
  eachRun(from, first, count, [&](uint32_t address, unsigned, unsigned) {
    markRead(w, address);
    return true;
  });
}

/// Reads an mn x 16 panel of 16-bit elements as floats, k first.
template <typename H>
bool readPanel(Warp &w, const Descriptor &from, unsigned first, unsigned count,
               float *to) {
  unsigned rowStep = from.kMajor ? 0 : 1;
  return eachRun(
      from, first, count, [&](uint32_t address, unsigned row, unsigned col) {
        const uint8_t *at = accessShared(w, 0, address, 16, Access::Read, true);
        if (!at)
          return false;
        uint16_t bits[8];
        std::memcpy(bits, at, sizeof bits);
        for (unsigned e = 0; e < 8; ++e)
          to[(col + e * (1 - rowStep)) * count + row + e * rowStep] =
              toFloat(H{bits[e]});
        return true;
      });
}

template <typename H>
void readRegisters(Warp &w, const Ref *a, float (*to)[16]) {
  for (unsigned r = 0; r < 4; ++r) {
    const uint32_t *words = source<uint32_t>(w, a[r]);
    for (unsigned lane = 0; lane < warpSize; ++lane)
      for (unsigned h = 0; h < 2; ++h)
        to[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8 + h] =
            toFloat(halfOf<H>(words[lane], h));
  }
}

// ops: N/2 accumulators, then 4 A registers or the A descriptor, the B
// descriptor, scale-d. kind: 1 A from registers, 2 A is MN-major, 4 B is, 8 A
// is negated, 16 B is, 32 f16. vector: N/8.
template <typename H>
bool product(Warp &w, const Instruction &i, const AsyncOp &op) {
  unsigned n = i.vector * 8u;
  float a[16][16], b[16 * 256], sums[16][256] = {};
  if (i.kind & 1) {
    readRegisters<H>(w, i.ops + n / 2, a);
  } else {
    float panel[16 * 16];
    Descriptor from(op.descA, !(i.kind & 2));
    if (!readPanel<H>(w, from, w.id % 4 * 16, 16, panel))
      return false;
    for (unsigned m = 0; m < 16; ++m)
      for (unsigned k = 0; k < 16; ++k)
        a[m][k] = panel[k * 16 + m];
  }
  if (!readPanel<H>(w, Descriptor(op.descB, !(i.kind & 4)), 0, n, b))
    return false;
  float sign = ((i.kind & 8) != 0) != ((i.kind & 16) != 0) ? -1.0f : 1.0f;
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned c = 0; c < n; ++c)
        sums[m][c] += sign * a[m][k] * b[k * n + c];
  for (unsigned r = 0; r < n / 2; ++r) {
    float *d = reinterpret_cast<float *>(place(w, i.ops[r]));
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      float sum =
          sums[lane / 4 + r / 2 % 2 * 8][r / 4 * 8 + lane % 4 * 2 + r % 2];
      d[lane] = (op.scaleD ? d[lane] : 0.0f) + sum;
    }
  }
  return true;
}

/// Every warp of a warpgroup must issue the same products.
void note(Warp &w, const AsyncOp &op) {
  ++w.wgmmaCount;
  for (uint64_t x : {uint64_t(op.pc), op.descA, op.descB})
    w.wgmmaHash = (w.wgmmaHash ^ x) * 0x100000001b3 + 1;
}

bool isUniform(Warp &w, Ref r) {
  uint64_t first = lane64(w, r, 0);
  for (unsigned lane = 1; lane < warpSize; ++lane)
    if (lane64(w, r, lane) != first)
      return false;
  return true;
}

void issue(Warp &w, const Instruction &i, uint32_t) {
  unsigned n = i.vector * 8u, lists = n / 2 + (i.kind & 1 ? 4 : 1);
  if (w.live != allLanes)
    return w.fail(0, "wgmma in a warp with lanes that have exited");
  AsyncOp op;
  op.kind = AsyncOp::Wgmma;
  op.pc = w.pc;
  op.group = w.productGroup;
  op.descA = i.kind & 1 ? 0 : lane64(w, i.ops[n / 2], 0);
  op.descB = lane64(w, i.ops[lists], 0);
  op.scaleD = predicateOf(w, i.ops[lists + 1]) & 1;
  if (!isUniform(w, i.ops[lists]) ||
      (!(i.kind & 1) && !isUniform(w, i.ops[n / 2])))
    return w.fail(0, "wgmma with a descriptor that differs between lanes");
  if (!w.fences)
    return w.fail(0, "wgmma without a wgmma.fence before it");
  note(w, op);
  if (!startProduct(w, i, n / 2, i.kind & 1 ? 4 : 0))
    return;
  if (!(i.kind & 1))
    markPanel(w, Descriptor(op.descA, !(i.kind & 2)), w.id % 4 * 16, 16);
  markPanel(w, Descriptor(op.descB, !(i.kind & 4)), 0, n);
  if (w.cta->options.late)
    w.products.push_back(op);
  else
    executeWgmma(w, op);
}

bool decodeProduct(Decoder &d) {
  const auto &ops = d.statement().operands;
  const auto &mods = d.statement().mods;
  std::string shape = mods.size() > 3 ? mods[3] : "";
  unsigned n = 0;
  if (shape.rfind("m64n", 0) == 0)
    n = unsigned(std::strtoul(shape.c_str() + 4, nullptr, 10));
  if (n % 8 || n < 8 || n > 256 ||
      shape != "m64n" + std::to_string(n) + "k16" || ops.size() < 6)
    return false;
  bool isBF16 = d.take("bf16") && d.take("bf16");
  if (!isBF16 && !(d.take("f16") && d.take("f16")))
    return false;
  d.inst.kind = isBF16 ? 0 : 32;
  d.inst.vector = uint8_t(n / 8);
  if (!d.take("sync") || !d.take("aligned") || !d.take(shape.c_str()) ||
      !d.take("f32") || !d.done() || ops[0].parts.size() != n / 2 ||
      !d.list(ops[0], Type::F32, true, true))
    return false;
  bool fromRegisters = ops[1].kind == Operand::List;
  d.inst.kind |= fromRegisters;
  if (fromRegisters
          ? ops[1].parts.size() != 4 || !d.list(ops[1], Type::B32, false, true)
          : !d.value(ops[1], Type::B64))
    return false;
  if (!d.arity(fromRegisters ? 7 : 8) || !d.value(ops[2], Type::B64) ||
      !d.predicate(ops[3]))
    return false;
  int64_t scaleA, scaleB, first, second = 0;
  if (!d.integer(ops[4], scaleA) || !d.integer(ops[5], scaleB) ||
      !d.integer(ops[6], first) ||
      (!fromRegisters && !d.integer(ops[7], second)))
    return false;
  int64_t transA = fromRegisters ? 0 : first;
  int64_t transB = fromRegisters ? first : second;
  d.inst.kind |= (transA ? 2 : 0) | (transB ? 4 : 0) | (scaleA < 0 ? 8 : 0) |
                 (scaleB < 0 ? 16 : 0);
  d.inst.run = issue;
  d.inst.isProduct = true;
  return true;
}

void fence(Warp &w, const Instruction &, uint32_t) { ++w.fences; }
void commit(Warp &w, const Instruction &, uint32_t) { ++w.productGroup; }

void wait(Warp &w, const Instruction &i, uint32_t) {
  uint32_t keep = uint32_t(i.offset);
  uint32_t upTo = w.productGroup > keep ? w.productGroup - keep : 0;
  while (!w.products.empty() && w.products.front().group < upTo) {
    AsyncOp op = w.products.take();
    execute(w, op);
  }
  w.doneGroup = std::max(w.doneGroup, upTo);
  w.anyInFlight = false;
  for (Warp::InFlight &r : w.inFlight) {
    if (r.what && r.group < upTo)
      r.what = 0;
    w.anyInFlight |= r.what != 0;
  }
}

bool decodeWgmma(Decoder &d) {
  d.inst.converge = Converge::Warp;
  d.programOf().usesWgmma = d.programOf().usesAsyncProxy = true;
  if (d.take("mma_async"))
    return decodeProduct(d);
  bool isFence = d.take("fence"), isCommit = d.take("commit_group"),
       isWait = d.take("wait_group");
  d.inst.run = isFence ? fence : isCommit ? commit : wait;
  if (!(isFence || isCommit || isWait) || !d.take("sync") ||
      !d.take("aligned") || !d.done())
    return false;
  return isWait
             ? d.arity(1) && d.integer(d.statement().operands[0], d.inst.offset)
             : d.arity(0);
}

} // namespace

void executeWgmma(Warp &w, const AsyncOp &op) {
  const Instruction &i = w.cta->program.code[size_t(op.pc)];
  if (i.kind & 32)
    product<F16>(w, i, op);
  else
    product<BF16>(w, i, op);
}

const std::vector<Opcode> &wgmmaOpcodes() {
  static const std::vector<Opcode> table = {{"wgmma", decodeWgmma}};
  return table;
}

} // namespace kdac::ptx
