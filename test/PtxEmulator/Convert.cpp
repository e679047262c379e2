// cvt, and moves that split and join registers.
#include "Lanes.h"
#include "Numbers.h"

namespace kdac::ptx {

namespace {

enum Rounding : uint8_t { Nearest, Zero, Down, Up };

double roundTo(double x, unsigned how) {
  switch (how) {
  case Zero:
    return std::trunc(x);
  case Down:
    return std::floor(x);
  case Up:
    return std::ceil(x);
  default:
    return std::nearbyint(x);
  }
}

/// To an integer of `bits`, clamped, NaN as 0.
uint64_t clampToInteger(double x, unsigned bits, bool isSigned) {
  if (x != x)
    return 0;
  double low = isSigned ? -std::ldexp(1.0, int(bits) - 1) : 0;
  double high = std::ldexp(1.0, int(bits) - (isSigned ? 1 : 0));
  if (x < low)
    x = low;
  if (x >= high)
    return isSigned ? (uint64_t(1) << (bits - 1)) - 1
                    : (bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1);
  return isSigned ? uint64_t(int64_t(x)) : uint64_t(x);
}

int64_t signExtend(uint64_t x, unsigned bits) {
  unsigned up = 64 - bits;
  return int64_t(x << up) >> up;
}
uint64_t zeroExtend(uint64_t x, unsigned bits) {
  return bits == 64 ? x : x & ((uint64_t(1) << bits) - 1);
}

// kind: rounding | sat << 2 | ftz << 3 | relu << 4; count: types.
bool isSat(const Instruction &i) { return i.kind & 4; }
bool isFtz(const Instruction &i) { return i.kind & 8; }
bool isRelu(const Instruction &i) { return i.kind & 16; }

template <Type A> double readFloat(uint64_t bits) {
  if constexpr (A == Type::F32)
    return bitsAs<float>(uint32_t(bits));
  else if constexpr (A == Type::F64)
    return bitsAs<double>(bits);
  else if constexpr (A == Type::F16)
    return toFloat(F16{uint16_t(bits)});
  else
    return toFloat(BF16{uint16_t(bits)});
}

/// Integer to integer. offset: bits of the source | bits of the target << 8 |
/// signs << 16.
void integers(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned from = i.offset & 255, to = i.offset >> 8 & 255;
  bool fromSigned = i.offset >> 16 & 1, toSigned = i.offset >> 17 & 1;
  eachLane(mask, [&](unsigned lane) {
    uint64_t x = zeroExtend(lane64(w, i.ops[1], lane), from);
    if (fromSigned)
      x = uint64_t(signExtend(x, from));
    if (isSat(i)) {
      __int128 v = fromSigned ? __int128(int64_t(x)) : __int128(x);
      __int128 one = 1;
      __int128 low = toSigned ? -(one << (to - 1)) : 0;
      __int128 high = (one << (to - (toSigned ? 1 : 0))) - 1;
      x = uint64_t(v < low ? low : v > high ? high : v);
    }
    x = zeroExtend(x, to);
    setLane(w, i.ops[0], lane, toSigned ? uint64_t(signExtend(x, to)) : x);
  });
}
/// The common ones, fast.
void widen(Warp &w, const Instruction &i, uint32_t mask) {
  auto *d = target<uint64_t>(w, i.ops[0]);
  auto *a = source<uint32_t>(w, i.ops[1]);
  eachLane(mask, [&](unsigned lane) { d[lane] = a[lane]; });
}
void narrow(Warp &w, const Instruction &i, uint32_t mask) {
  auto *d = target<uint32_t>(w, i.ops[0]);
  auto *a = source<uint64_t>(w, i.ops[1]);
  eachLane(mask, [&](unsigned lane) { d[lane] = uint32_t(a[lane]); });
}

template <Type A>
void floatToInteger(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned to = i.offset >> 8 & 255;
  bool toSigned = i.offset >> 17 & 1;
  eachLane(mask, [&](unsigned lane) {
    double x = readFloat<A>(lane64(w, i.ops[1], lane));
    if (isFtz(i))
      x = flush(float(x));
    setLane(w, i.ops[0], lane,
            clampToInteger(roundTo(x, i.kind & 3), to, toSigned));
  });
}

/// A double to a narrower float in the given direction, once.
float toSingle(double x, unsigned how) {
  float r = float(x);
  if (how == Nearest || double(r) == x || r != r)
    return r;
  bool away = std::fabs(double(r)) > std::fabs(x);
  bool wantSmaller =
      how == Zero || (how == Down && x > 0) || (how == Up && x < 0);
  if (wantSmaller == away)
    return away ? std::nextafterf(r, 0) : r;
  return away ? r : std::nextafterf(r, x > 0 ? INFINITY : -INFINITY);
}
template <typename H> H toHalf(float x, unsigned how) {
  H r = fromFloat<H>(x);
  float back = toFloat(r);
  if (how == Zero && std::fabs(back) > std::fabs(x))
    --r.bits;
  return r;
}

template <Type R> uint64_t writeFloat(const Instruction &i, double x) {
  unsigned how = i.kind & 3;
  if constexpr (R == Type::F64)
    return bitsAs<uint64_t>(x);
  float single = toSingle(x, how);
  if (isFtz(i))
    single = flush(single);
  if (isRelu(i))
    single = single > 0 ? single : 0;
  if (isSat(i))
    single = single > 0 ? (single < 1 ? single : 1) : 0;
  if constexpr (R == Type::F32)
    return bitsAs<uint32_t>(single);
  else if constexpr (R == Type::F16)
    return toHalf<F16>(single, how).bits;
  else
    return toHalf<BF16>(single, how).bits;
}

template <Type R>
void integerToFloat(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned from = i.offset & 255;
  bool fromSigned = i.offset >> 16 & 1;
  eachLane(mask, [&](unsigned lane) {
    uint64_t x = zeroExtend(lane64(w, i.ops[1], lane), from);
    int64_t s = signExtend(x, from);
    // From 64 bits straight to f32: a detour through double would round twice.
    if (R == Type::F32 && (i.kind & 3) == Nearest && !isSat(i))
      setLane(w, i.ops[0], lane,
              bitsAs<uint32_t>(fromSigned ? float(s) : float(x)));
    else
      setLane(w, i.ops[0], lane,
              writeFloat<R>(i, fromSigned ? double(s) : double(x)));
  });
}
/// kind 32: to an integral value in the same type.
template <Type R, Type A>
void floatToFloat(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    double x = readFloat<A>(lane64(w, i.ops[1], lane));
    if (isFtz(i))
      x = flush(float(x));
    if (i.kind & 32)
      x = roundTo(x, i.kind & 3);
    setLane(w, i.ops[0], lane, writeFloat<R>(i, x));
  });
}
template <typename H>
void halfToSingle(Warp &w, const Instruction &i, uint32_t mask) {
  auto *d = target<float>(w, i.ops[0]);
  auto *a = source<uint32_t>(w, i.ops[1]);
  eachLane(mask, [&](unsigned lane) {
    d[lane] = bitsAs<uint32_t>(toFloat(H{uint16_t(a[lane])}));
  });
}
template <typename H>
void singleToPair(Warp &w, const Instruction &i, uint32_t mask) {
  auto *d = target<uint32_t>(w, i.ops[0]);
  auto *a = source<float>(w, i.ops[1]), *b = source<float>(w, i.ops[2]);
  bool relu = isRelu(i);
  eachLane(mask, [&](unsigned lane) {
    float high = bitsAs<float>(a[lane]), low = bitsAs<float>(b[lane]);
    if (relu) {
      high = high > 0 ? high : 0;
      low = low > 0 ? low : 0;
    }
    if ((i.kind & 3) == Nearest)
      d[lane] =
          uint32_t(fromFloat<H>(high).bits) << 16 | fromFloat<H>(low).bits;
    else
      d[lane] = uint32_t(toHalf<H>(high, i.kind & 3).bits) << 16 |
                toHalf<H>(low, i.kind & 3).bits;
  });
}
void singleToTF32(Warp &w, const Instruction &i, uint32_t mask) {
  auto *d = target<uint32_t>(w, i.ops[0]);
  auto *a = source<float>(w, i.ops[1]);
  eachLane(mask, [&](unsigned lane) {
    float x = bitsAs<float>(a[lane]);
    if (isRelu(i))
      x = x > 0 ? x : 0;
    if (i.kind & 64) { // to nearest even
      uint32_t bits = bitsAs<uint32_t>(x);
      d[lane] =
          x != x ? bits : (bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t(0x1fff);
    } else {
      d[lane] = roundTF32(x);
    }
  });
}

template <Type R> Handler fromFloatType(Type a) {
  switch (a) {
  case Type::F16:
    return floatToFloat<R, Type::F16>;
  case Type::BF16:
    return floatToFloat<R, Type::BF16>;
  case Type::F32:
    return floatToFloat<R, Type::F32>;
  case Type::F64:
    return floatToFloat<R, Type::F64>;
  default:
    return isInteger(a) ? integerToFloat<R> : Handler(nullptr);
  }
}
Handler cvtHandler(Type r, Type a, bool plain) {
  if (isInteger(r) && isInteger(a)) {
    if (plain && bitsOf(r) == 64 && a == Type::U32)
      return widen;
    if (plain && bitsOf(r) == 32 && bitsOf(a) == 64)
      return narrow;
    return integers;
  }
  if (plain && r == Type::F32 && a == Type::F16)
    return halfToSingle<F16>;
  if (plain && r == Type::F32 && a == Type::BF16)
    return halfToSingle<BF16>;
  switch (r) {
  case Type::F16:
    return fromFloatType<Type::F16>(a);
  case Type::BF16:
    return fromFloatType<Type::BF16>(a);
  case Type::F32:
    return fromFloatType<Type::F32>(a);
  case Type::F64:
    return fromFloatType<Type::F64>(a);
  default:
    break;
  }
  switch (a) {
  case Type::F16:
    return floatToInteger<Type::F16>;
  case Type::BF16:
    return floatToInteger<Type::BF16>;
  case Type::F32:
    return floatToInteger<Type::F32>;
  case Type::F64:
    return floatToInteger<Type::F64>;
  default:
    return nullptr;
  }
}

void takeRounding(Decoder &d) {
  struct Row {
    const char *name;
    uint8_t kind;
  };
  constexpr Row rows[] = {
      {"rn", Nearest},    {"rz", Zero},          {"rm", Down},
      {"rp", Up},         {"rni", Nearest | 32}, {"rzi", Zero | 32},
      {"rmi", Down | 32}, {"rpi", Up | 32},      {"rna", 0}};
  for (const Row &row : rows)
    if (d.take(row.name))
      d.inst.kind |= row.kind;
  if (d.take("sat"))
    d.inst.kind |= 4;
  if (d.take("ftz"))
    d.inst.kind |= 8;
  if (d.take("relu"))
    d.inst.kind |= 16;
}

bool cvtToPair(Decoder &d, Type r) {
  const auto &ops = d.statement().operands;
  d.inst.run = r == Type::F16x2 ? singleToPair<F16> : singleToPair<BF16>;
  return d.arity(3) && d.destination(ops[0], r) && d.value(ops[1], Type::F32) &&
         d.value(ops[2], Type::F32) && d.done();
}

bool cvt(Decoder &d) {
  Type a = d.takeType(), r = d.takeType();
  const auto &ops = d.statement().operands;
  bool toNearestEven = d.nextMod() && *d.nextMod() == "rn";
  takeRounding(d);
  if (a == Type::F32 && (r == Type::F16x2 || r == Type::BF16x2))
    return cvtToPair(d, r);
  if (r == Type::TF32) {
    d.inst.run = singleToTF32;
    d.inst.kind |= toNearestEven ? 64 : 0;
    return a == Type::F32 && d.arity(2) && d.destination(ops[0], r) &&
           d.value(ops[1], a) && d.done();
  }
  if (r == Type::None || a == Type::None || !d.arity(2) ||
      !d.destination(ops[0], r, false) || !d.value(ops[1], a, false))
    return false;
  d.inst.run = cvtHandler(r, a, d.inst.kind == 0);
  d.inst.offset = bitsOf(a) | bitsOf(r) << 8 | (isSignedType(a) ? 1 : 0) << 16 |
                  (isSignedType(r) ? 1 : 0) << 17;
  return d.inst.run && d.done();
}

} // namespace

const std::vector<Opcode> &convertOpcodes() {
  static const std::vector<Opcode> table = {{"cvt", cvt}};
  return table;
}

} // namespace kdac::ptx
