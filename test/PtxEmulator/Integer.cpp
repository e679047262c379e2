// Integer arithmetic, logic, comparisons and selections.
#include "Lanes.h"

namespace kdac::ptx {

namespace {

struct Add {
  template <typename T> T operator()(T a, T b) const { return T(a + b); }
};
struct Sub {
  template <typename T> T operator()(T a, T b) const { return T(a - b); }
};
struct MulLo {
  template <typename T> T operator()(T a, T b) const {
    return T(uint64_t(a) * uint64_t(b));
  }
};
struct MulHi {
  template <typename T> T operator()(T a, T b) const {
    constexpr unsigned bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return T((__int128(a) * b) >> bits);
    else
      return T((static_cast<unsigned __int128>(a) * b) >> bits);
  }
};
struct And {
  template <typename T> T operator()(T a, T b) const { return a & b; }
};
struct Or {
  template <typename T> T operator()(T a, T b) const { return a | b; }
};
struct Xor {
  template <typename T> T operator()(T a, T b) const { return a ^ b; }
};
struct Not {
  template <typename T> T operator()(T a) const { return T(~a); }
};
struct CNot {
  template <typename T> T operator()(T a) const { return T(a == 0); }
};
struct Neg {
  template <typename T> T operator()(T a) const { return T(0 - a); }
};
struct Min {
  template <typename T> T operator()(T a, T b) const { return a < b ? a : b; }
};
struct Max {
  template <typename T> T operator()(T a, T b) const { return a < b ? b : a; }
};
/// Only lanes with b != 0 get here; the most negative number stays itself.
struct Div {
  template <typename T> T operator()(T a, T b) const {
    if (b == 0)
      return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1))
      return T(0 - uint64_t(a));
    return T(a / b);
  }
};
struct Rem {
  template <typename T> T operator()(T a, T b) const {
    if (b == 0)
      return a;
    if (std::is_signed_v<T> && b == T(-1))
      return 0;
    return T(a % b);
  }
};

template <typename A, typename R, typename Op>
void wide(Warp &w, const Instruction &i, uint32_t mask) {
  map2<R, A, A>(w, i, mask, [](A a, A b) { return R(R(a) * R(b)); });
}
template <typename T> void madLo(Warp &w, const Instruction &i, uint32_t mask) {
  map3<T, T, T, T>(w, i, mask, [](T a, T b, T c) {
    return T(uint64_t(a) * uint64_t(b) + uint64_t(c));
  });
}
template <typename T> void madHi(Warp &w, const Instruction &i, uint32_t mask) {
  map3<T, T, T, T>(w, i, mask,
                   [](T a, T b, T c) { return T(MulHi()(a, b) + c); });
}
template <typename A, typename R>
void madWide(Warp &w, const Instruction &i, uint32_t mask) {
  using U = std::make_unsigned_t<R>;
  map3<R, A, A, R>(w, i, mask,
                   [](A a, A b, R c) { return R(U(R(R(a) * R(b))) + U(c)); });
}

Handler wideHandler(Type t, bool mad) {
  switch (t) {
  case Type::U16:
    return mad ? madWide<uint16_t, uint32_t> : wide<uint16_t, uint32_t, void>;
  case Type::S16:
    return mad ? madWide<int16_t, int32_t> : wide<int16_t, int32_t, void>;
  case Type::U32:
    return mad ? madWide<uint32_t, uint64_t> : wide<uint32_t, uint64_t, void>;
  case Type::S32:
    return mad ? madWide<int32_t, int64_t> : wide<int32_t, int64_t, void>;
  default:
    return nullptr;
  }
}

Type widened(Type t) { return bitsOf(t) == 16 ? Type::B32 : Type::B64; }

Handler madHandler(Type t, bool high) {
  switch (t) {
  case Type::U16:
    return high ? madHi<uint16_t> : madLo<uint16_t>;
  case Type::S16:
    return high ? madHi<int16_t> : madLo<uint16_t>;
  case Type::U32:
    return high ? madHi<uint32_t> : madLo<uint32_t>;
  case Type::S32:
    return high ? madHi<int32_t> : madLo<uint32_t>;
  case Type::U64:
    return high ? madHi<uint64_t> : madLo<uint64_t>;
  case Type::S64:
    return high ? madHi<int64_t> : madLo<uint64_t>;
  default:
    return nullptr;
  }
}

template <typename T, typename Op>
void divide(Warp &w, const Instruction &i, uint32_t mask) {
  const Slot<T> *b = source<T>(w, i.ops[2]);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    if (bitsAs<T>(b[lane]) == 0)
      return w.fail(lane, "integer division by zero");
  }
  binary<Op, T>(w, i, mask);
}
template <typename Op> Handler divideHandler(Type t) {
  switch (t) {
  case Type::U16:
    return divide<uint16_t, Op>;
  case Type::S16:
    return divide<int16_t, Op>;
  case Type::U32:
    return divide<uint32_t, Op>;
  case Type::S32:
    return divide<int32_t, Op>;
  case Type::U64:
    return divide<uint64_t, Op>;
  case Type::S64:
    return divide<int64_t, Op>;
  default:
    return nullptr;
  }
}

template <bool right, typename T>
void shift(Warp &w, const Instruction &i, uint32_t mask) {
  map2<T, T, uint32_t>(w, i, mask, [](T a, uint32_t b) -> T {
    constexpr uint32_t bits = 8 * sizeof(T);
    if constexpr (right)
      return T(a >> (b < bits ? b : bits - 1) >> (b < bits ? 0 : 1));
    else
      return b < bits ? T(uint64_t(a) << b) : T(0);
  });
}
Handler shiftHandler(Type t, bool right) {
  switch (t) {
  case Type::S16:
    if (right)
      return shift<true, int16_t>;
    [[fallthrough]];
  case Type::U16:
  case Type::B16:
    return right ? shift<true, uint16_t> : shift<false, uint16_t>;
  case Type::S32:
    if (right)
      return shift<true, int32_t>;
    [[fallthrough]];
  case Type::U32:
  case Type::B32:
    return right ? shift<true, uint32_t> : shift<false, uint32_t>;
  case Type::S64:
    if (right)
      return shift<true, int64_t>;
    [[fallthrough]];
  case Type::U64:
  case Type::B64:
    return right ? shift<true, uint64_t> : shift<false, uint64_t>;
  default:
    return nullptr;
  }
}

template <typename Op>
void predBinary(Warp &w, const Instruction &i, uint32_t mask) {
  setPredicate(w, i.ops[0], mask,
               Op()(predicateOf(w, i.ops[1]), predicateOf(w, i.ops[2])));
}
void predNot(Warp &w, const Instruction &i, uint32_t mask) {
  setPredicate(w, i.ops[0], mask, ~predicateOf(w, i.ops[1]));
}

bool predOperands(Decoder &d, size_t n) {
  if (!d.arity(n + 1))
    return false;
  for (const Operand &op : d.statement().operands)
    if (!d.predicate(op))
      return false;
  return d.done();
}

//===--- decoding -----------------------------------------------------------//

template <typename Op> bool addLike(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = isInteger(t) ? bitwiseBinary<Op>(t) : nullptr;
  return d.inst.run && uniformOperands(d, t, 2);
}
template <typename Op> bool logic(Decoder &d) {
  Type t = d.takeType();
  if (t == Type::Pred) {
    d.inst.run = predBinary<Op>;
    return predOperands(d, 2);
  }
  d.inst.run = bitwiseBinary<Op>(t);
  return d.inst.run && uniformOperands(d, t, 2);
}
bool logicNot(Decoder &d) {
  Type t = d.takeType();
  if (t == Type::Pred) {
    d.inst.run = predNot;
    return predOperands(d, 1);
  }
  d.inst.run = bitwiseUnary<Not>(t);
  return d.inst.run && uniformOperands(d, t, 1);
}
bool logicCNot(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = bitwiseUnary<CNot>(t);
  return d.inst.run && uniformOperands(d, t, 1);
}

bool multiply(Decoder &d) {
  Type t = d.takeType();
  if (d.take("wide")) {
    d.inst.run = wideHandler(t, false);
    const auto &ops = d.statement().operands;
    return d.inst.run && d.arity(3) && d.destination(ops[0], widened(t)) &&
           d.value(ops[1], t) && d.value(ops[2], t) && d.done();
  }
  bool high = d.take("hi");
  if (!high && !d.take("lo"))
    return false;
  d.inst.run = high ? integerBinary<MulHi>(t) : bitwiseBinary<MulLo>(t);
  return d.inst.run && uniformOperands(d, t, 2);
}
bool mad(Decoder &d) {
  Type t = d.takeType();
  if (d.take("wide")) {
    d.inst.run = wideHandler(t, true);
    const auto &ops = d.statement().operands;
    return d.inst.run && d.arity(4) && d.destination(ops[0], widened(t)) &&
           d.value(ops[1], t) && d.value(ops[2], t) &&
           d.value(ops[3], widened(t)) && d.done();
  }
  bool high = d.take("hi");
  if (!high && !d.take("lo"))
    return false;
  d.inst.run = madHandler(t, high);
  return d.inst.run && uniformOperands(d, t, 3);
}
template <typename Op> bool division(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = divideHandler<Op>(t);
  return d.inst.run && uniformOperands(d, t, 2);
}
template <typename Op> bool minMax(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = integerBinary<Op>(t);
  return d.inst.run && uniformOperands(d, t, 2);
}
bool negate(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = isInteger(t) ? bitwiseUnary<Neg>(t) : nullptr;
  return d.inst.run && uniformOperands(d, t, 1);
}
struct Abs {
  template <typename T> T operator()(T a) const {
    using S = std::make_signed_t<T>;
    return S(a) < 0 ? T(0 - a) : a;
  }
};
bool absolute(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = isSignedType(t) ? bitwiseUnary<Abs>(t) : nullptr;
  return d.inst.run && uniformOperands(d, t, 1);
}

template <bool right> bool shifts(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = shiftHandler(t, right);
  const auto &ops = d.statement().operands;
  return d.inst.run && d.arity(3) && d.destination(ops[0], t) &&
         d.value(ops[1], t) && d.value(ops[2], Type::U32) && d.done();
}

/// shf: the 64-bit value b:a, shifted.
template <bool right, bool wrap>
void funnel(Warp &w, const Instruction &i, uint32_t mask) {
  map3<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, mask, [](uint32_t a, uint32_t b, uint32_t c) {
        c = wrap ? c & 31 : std::min(c, 32u);
        uint64_t both = uint64_t(b) << 32 | a;
        return right ? uint32_t(both >> c)
                     : (c == 32 ? a : uint32_t((both << c) >> 32));
      });
}
bool shf(Decoder &d) {
  Type t = d.takeType();
  bool right = d.take("r");
  if (!right && !d.take("l"))
    return false;
  bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp"))
    return false;
  d.inst.run = right ? (wrap ? funnel<true, true> : funnel<true, false>)
                     : (wrap ? funnel<false, true> : funnel<false, false>);
  return t == Type::B32 && uniformOperands(d, t, 3);
}

template <typename T>
void bitFieldExtract(Warp &w, const Instruction &i, uint32_t mask) {
  map3<T, T, uint32_t, uint32_t>(
      w, i, mask, [](T a, uint32_t b, uint32_t c) -> T {
        constexpr unsigned msb = 8 * sizeof(T) - 1;
        unsigned pos = b & 0xff, len = c & 0xff;
        bool isSigned = std::is_signed_v<T>;
        bool sign =
            isSigned && len != 0 && ((a >> std::min(pos + len - 1, msb)) & 1);
        uint64_t bits = 0;
        if (pos <= msb)
          bits = uint64_t(std::make_unsigned_t<T>(a)) >> pos;
        unsigned have = pos <= msb ? std::min(len, msb - pos + 1) : 0;
        if (have < 64)
          bits &= (uint64_t(1) << have) - 1;
        if (sign && have < 64)
          bits |= ~uint64_t(0) << have;
        return T(bits);
      });
}
bool bfe(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = t == Type::U32   ? bitFieldExtract<uint32_t>
               : t == Type::S32 ? bitFieldExtract<int32_t>
               : t == Type::U64 ? bitFieldExtract<uint64_t>
               : t == Type::S64 ? bitFieldExtract<int64_t>
                                : Handler(nullptr);
  const auto &ops = d.statement().operands;
  return d.inst.run && d.arity(4) && d.destination(ops[0], t) &&
         d.value(ops[1], t) && d.value(ops[2], Type::U32) &&
         d.value(ops[3], Type::U32) && d.done();
}

template <typename T>
void bitFieldInsert(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    uint64_t a = lane64(w, i.ops[1], lane), b = lane64(w, i.ops[2], lane);
    unsigned pos = lane32(w, i.ops[3], lane) & 0xff;
    unsigned len = lane32(w, i.ops[4], lane) & 0xff;
    uint64_t field = len >= 64 ? ~uint64_t(0) : (uint64_t(1) << len) - 1;
    field = pos < 64 ? field << pos : 0;
    uint64_t moved = pos < 64 ? a << pos : 0;
    setLane(w, i.ops[0], lane, T((b & ~field) | (moved & field)));
  });
}
bool bfi(Decoder &d) {
  Type t = d.takeType();
  d.inst.run =
      bitsOf(t) == 64 ? bitFieldInsert<uint64_t> : bitFieldInsert<uint32_t>;
  const auto &ops = d.statement().operands;
  return d.arity(5) && d.destination(ops[0], t) && d.value(ops[1], t) &&
         d.value(ops[2], t) && d.value(ops[3], Type::U32) &&
         d.value(ops[4], Type::U32) && d.done();
}

template <typename T, int which>
void countBits(Warp &w, const Instruction &i, uint32_t mask) {
  map1<uint32_t, T>(w, i, mask, [](T a) -> uint32_t {
    constexpr unsigned bits = 8 * sizeof(T);
    uint64_t x = a;
    if (which == 0)
      return uint32_t(__builtin_popcountll(x));
    unsigned zeros = x ? unsigned(__builtin_clzll(x)) - (64 - bits) : bits;
    if (which == 1)
      return zeros;
    return x ? bits - 1 - zeros : ~0u; // bfind
  });
}
template <int which> bool counts(Decoder &d) {
  Type t = d.takeType();
  d.inst.run =
      bitsOf(t) == 64 ? countBits<uint64_t, which> : countBits<uint32_t, which>;
  const auto &ops = d.statement().operands;
  return bitsOf(t) >= 32 && !(which == 2 && isSignedType(t)) && d.arity(2) &&
         d.destination(ops[0], Type::U32) && d.value(ops[1], t) && d.done();
}
struct Reverse {
  template <typename T> T operator()(T a) const {
    T r = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i)
      r = T(r << 1) | T((a >> i) & 1);
    return r;
  }
};
bool brev(Decoder &d) {
  Type t = d.takeType();
  d.inst.run = bitwiseUnary<Reverse>(t);
  return d.inst.run && uniformOperands(d, t, 1);
}

void lop3Run(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned table = static_cast<unsigned>(i.offset);
  map3<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, mask, [table](uint32_t a, uint32_t b, uint32_t c) {
        uint32_t r = 0;
        for (unsigned k = 0; k < 8; ++k)
          if (table >> k & 1)
            r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return r;
      });
}
bool lop3(Decoder &d) {
  Type t = d.takeType();
  const auto &ops = d.statement().operands;
  d.inst.run = lop3Run;
  return t == Type::B32 && d.arity(5) && d.destination(ops[0], t) &&
         d.value(ops[1], t) && d.value(ops[2], t) && d.value(ops[3], t) &&
         d.integer(ops[4], d.inst.offset) && d.done();
}

void prmtRun(Warp &w, const Instruction &i, uint32_t mask) {
  map3<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, mask, [](uint32_t a, uint32_t b, uint32_t c) {
        uint64_t both = uint64_t(b) << 32 | a;
        uint32_t r = 0;
        for (unsigned k = 0; k < 4; ++k) {
          unsigned select = c >> (4 * k) & 15;
          uint32_t byte = uint32_t(both >> (8 * (select & 7))) & 0xff;
          if (select & 8)
            byte = byte & 0x80 ? 0xff : 0;
          r |= byte << (8 * k);
        }
        return r;
      });
}
bool prmt(Decoder &d) {
  d.inst.run = prmtRun;
  return d.takeType() == Type::B32 && uniformOperands(d, Type::B32, 3);
}

template <typename T>
void select(Warp &w, const Instruction &i, uint32_t mask) {
  Slot<T> *d = target<T>(w, i.ops[0]);
  const Slot<T> *a = source<T>(w, i.ops[1]), *b = source<T>(w, i.ops[2]);
  uint32_t p = predicateOf(w, i.ops[3]);
  eachLane(mask,
           [&](unsigned lane) { d[lane] = p >> lane & 1 ? a[lane] : b[lane]; });
}
bool selp(Decoder &d) {
  Type t = d.takeType();
  const auto &ops = d.statement().operands;
  d.inst.run = bitsOf(t) == 64 ? select<uint64_t> : select<uint32_t>;
  return bitsOf(t) >= 16 && d.arity(4) && d.destination(ops[0], t) &&
         d.value(ops[1], t) && d.value(ops[2], t) && d.predicate(ops[3]) &&
         d.done();
}

/// Integer forms; those of floats are in Float.cpp.
template <typename Op, bool forFloat(Decoder &)> bool eitherAdd(Decoder &d) {
  Type t = typeNamed(d.statement().mods.back());
  return isInteger(t) ? addLike<Op>(d) : forFloat(d);
}

} // namespace

bool floatAdd(Decoder &d);
bool floatSub(Decoder &d);
bool floatMul(Decoder &d);
bool floatDiv(Decoder &d);
bool floatMin(Decoder &d);
bool floatMax(Decoder &d);
bool floatNeg(Decoder &d);
bool floatAbs(Decoder &d);
bool floatFma(Decoder &d);

template <bool integerForm(Decoder &), bool floatForm(Decoder &)>
static bool either(Decoder &d) {
  const auto &mods = d.statement().mods;
  return !mods.empty() && isInteger(typeNamed(mods.back())) ? integerForm(d)
                                                            : floatForm(d);
}

const std::vector<Opcode> &arithmeticOpcodes() {
  static const std::vector<Opcode> table = {
      {"add", either<addLike<Add>, floatAdd>},
      {"sub", either<addLike<Sub>, floatSub>},
      {"mul", either<multiply, floatMul>},
      {"mad", either<mad, floatFma>},
      {"div", either<division<Div>, floatDiv>},
      {"rem", division<Rem>},
      {"min", either<minMax<Min>, floatMin>},
      {"max", either<minMax<Max>, floatMax>},
      {"neg", either<negate, floatNeg>},
      {"abs", either<absolute, floatAbs>},
      {"and", logic<And>},
      {"or", logic<Or>},
      {"xor", logic<Xor>},
      {"not", logicNot},
      {"cnot", logicCNot},
      {"shl", shifts<false>},
      {"shr", shifts<true>},
      {"shf", shf},
      {"bfe", bfe},
      {"bfi", bfi},
      {"popc", counts<0>},
      {"clz", counts<1>},
      {"bfind", counts<2>},
      {"brev", brev},
      {"lop3", lop3},
      {"prmt", prmt},
      {"selp", selp},
  };
  return table;
}

} // namespace kdac::ptx
