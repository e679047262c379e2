// Floating-point arithmetic, approximations and comparisons.
#include "Lanes.h"
#include "Numbers.h"

namespace kdac::ptx {

namespace {

struct Add {
  template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct Sub {
  template <typename T> T operator()(T a, T b) const { return a - b; }
};
struct Mul {
  template <typename T> T operator()(T a, T b) const { return a * b; }
};
struct Div {
  template <typename T> T operator()(T a, T b) const { return a / b; }
};
struct Fma {
  template <typename T> T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
/// IEEE 754's minNum: a number wins over NaN, -0 is less than +0.
struct Min {
  template <typename T> T operator()(T a, T b) const {
    if (a != a)
      return b;
    if (b != b)
      return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  template <typename T> T operator()(T a, T b) const {
    if (a != a)
      return b;
    if (b != b)
      return a;
    return a > b || (a == b && std::signbit(b)) ? a : b;
  }
};
template <typename Op> struct OrNan {
  template <typename T> T operator()(T a, T b) const {
    return a != a || b != b ? T(NAN) : Op()(a, b);
  }
};
struct Neg {
  template <typename T> T operator()(T a) const { return -a; }
};
struct Abs {
  template <typename T> T operator()(T a) const { return std::fabs(a); }
};
struct CopySign {
  template <typename T> T operator()(T a, T b) const {
    return std::copysign(b, a); // the sign of a, the magnitude of b
  }
};
struct Exp2 {
  float operator()(float a) const { return exp2f(a); }
};
struct Log2 {
  float operator()(float a) const { return log2f(a); }
};
struct Reciprocal {
  template <typename T> T operator()(T a) const { return T(1) / a; }
};
struct RootReciprocal {
  float operator()(float a) const { return float(1 / std::sqrt(double(a))); }
};
struct Root {
  template <typename T> T operator()(T a) const { return std::sqrt(a); }
};
struct Tanh {
  float operator()(float a) const { return tanhf(a); }
};
struct Sine {
  float operator()(float a) const { return sinf(a); }
};
struct Cosine {
  float operator()(float a) const { return cosf(a); }
};

/// With subnormals flushed, and the result clamped to [0, 1], on request.
template <typename Op, bool ftz, bool sat> struct Modified {
  float in(float x) const { return ftz ? flush(x) : x; }
  float out(float x) const {
    if (ftz)
      x = flush(x);
    return sat ? (x > 0 ? (x < 1 ? x : 1.0f) : 0.0f) : x;
  }
  float operator()(float a) const { return out(Op()(in(a))); }
  float operator()(float a, float b) const { return out(Op()(in(a), in(b))); }
  float operator()(float a, float b, float c) const {
    return out(Op()(in(a), in(b), in(c)));
  }
};

/// 16-bit floats are computed in f32, which is exact enough to round once.
template <typename Op, typename H, size_t n, bool pair>
void halves(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t *d = target<uint32_t>(w, i.ops[0]);
  const uint32_t *s[3] = {};
  for (size_t k = 0; k < n; ++k)
    s[k] = source<uint32_t>(w, i.ops[k + 1]);
  eachLane(mask, [&](unsigned lane) {
    uint32_t result = 0;
    for (unsigned h = 0; h < (pair ? 2 : 1); ++h) {
      float x[3] = {};
      for (size_t k = 0; k < n; ++k)
        x[k] = toFloat(halfOf<H>(s[k][lane], h));
      float r;
      if constexpr (n == 1)
        r = Op()(x[0]);
      else if constexpr (n == 2)
        r = Op()(x[0], x[1]);
      else
        r = float(double(x[0]) * double(x[1]) + double(x[2]));
      if (i.kind == 1) // relu
        r = r > 0 ? r : 0;
      result |= uint32_t(fromFloat<H>(r).bits) << (16 * h);
    }
    d[lane] = result;
  });
}
template <typename Op, size_t n> Handler halfHandler(Type t) {
  switch (t) {
  case Type::F16:
    return halves<Op, F16, n, false>;
  case Type::F16x2:
    return halves<Op, F16, n, true>;
  case Type::BF16:
    return halves<Op, BF16, n, false>;
  case Type::BF16x2:
    return halves<Op, BF16, n, true>;
  default:
    return nullptr;
  }
}

template <typename Op, size_t n> Handler of(Type t, bool ftz, bool sat) {
  if (t == Type::F32) {
    auto choose = [](auto modified) -> Handler {
      using M = decltype(modified);
      if constexpr (n == 1)
        return unary<M, float>;
      else if constexpr (n == 2)
        return binary<M, float>;
      else
        return ternary<M, float>;
    };
    return ftz ? (sat ? choose(Modified<Op, true, true>())
                      : choose(Modified<Op, true, false>()))
               : (sat ? choose(Modified<Op, false, true>())
                      : choose(Modified<Op, false, false>()));
  }
  if (sat)
    return nullptr;
  if constexpr (!std::is_invocable_v<Op, double> && n == 1)
    return halfHandler<Op, n>(t);
  else if (t != Type::F64)
    return halfHandler<Op, n>(t);
  if constexpr (n == 1)
    return unary<Op, double>;
  else if constexpr (n == 2)
    return binary<Op, double>;
  else
    return ternary<Op, double>;
}

template <typename Op, size_t n> bool arithmetic(Decoder &d) {
  Type t = d.takeType();
  bool ftz = d.take("ftz"), sat = d.take("sat");
  d.inst.kind = d.take("relu");
  d.drop({"rn", "approx", "full"});
  d.inst.run = of<Op, n>(t, ftz, sat);
  if (d.inst.kind && (t == Type::F32 || t == Type::F64))
    return false;
  return d.inst.run && uniformOperands(d, t, n);
}

template <typename Op> bool minMax(Decoder &d) {
  return d.take("NaN") ? arithmetic<OrNan<Op>, 2>(d) : arithmetic<Op, 2>(d);
}

//===--- comparisons, integers too ------------------------------------------//

enum Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan, Bad };
struct CompareName {
  const char *name;
  Compare compare;
  bool orNan, isUnsigned;
};
constexpr CompareName compares[] = {
    {"eq", Eq, false, false},   {"ne", Ne, false, false},
    {"lt", Lt, false, false},   {"le", Le, false, false},
    {"gt", Gt, false, false},   {"ge", Ge, false, false},
    {"equ", Eq, true, false},   {"neu", Ne, true, false},
    {"ltu", Lt, true, false},   {"leu", Le, true, false},
    {"gtu", Gt, true, false},   {"geu", Ge, true, false},
    {"num", Num, false, false}, {"nan", Nan, false, false},
    {"lo", Lt, false, true},    {"ls", Le, false, true},
    {"hi", Gt, false, true},    {"hs", Ge, false, true},
};

template <typename T> auto comparable(T x) { return x; }
inline float comparable(F16 x) { return toFloat(x); }
inline float comparable(BF16 x) { return toFloat(x); }

/// ops: p, q, a, b, c; q and c may be none. kind: compare | orNan << 4;
/// offset: the boolean operation, 0 none, 1 and, 2 or, 3 xor; bit 2: !c.
template <typename T> void setp(Warp &w, const Instruction &i, uint32_t mask) {
  const Slot<T> *a = source<T>(w, i.ops[2]), *b = source<T>(w, i.ops[3]);
  uint32_t result = 0;
  auto all = [&](auto compare) {
    eachLane(mask, [&](unsigned lane) {
      auto x = comparable(bitsAs<T>(a[lane]));
      auto y = comparable(bitsAs<T>(b[lane]));
      result |= uint32_t(compare(x, y)) << lane;
    });
  };
  auto isNan = [](auto x, auto y) { return x != x || y != y; };
  switch (i.kind & 15) {
  case Eq:
    all([](auto x, auto y) { return x == y; });
    break;
  case Ne:
    all([&](auto x, auto y) { return x != y && !isNan(x, y); });
    break;
  case Lt:
    all([](auto x, auto y) { return x < y; });
    break;
  case Le:
    all([](auto x, auto y) { return x <= y; });
    break;
  case Gt:
    all([](auto x, auto y) { return x > y; });
    break;
  case Ge:
    all([](auto x, auto y) { return x >= y; });
    break;
  case Num:
    all([&](auto x, auto y) { return !isNan(x, y); });
    break;
  case Nan:
    all(isNan);
    break;
  }
  if (i.kind & 16) {
    uint32_t ordered = result;
    result = 0;
    all(isNan);
    result |= ordered;
  }
  uint32_t no = ~result;
  if (i.offset & 3) {
    uint32_t c = predicateOf(w, i.ops[4]) ^ (i.offset & 4 ? allLanes : 0);
    auto with = [&](uint32_t x) {
      int op = i.offset & 3;
      return op == 1 ? x & c : op == 2 ? x | c : x ^ c;
    };
    result = with(result);
    no = with(no);
  }
  setPredicate(w, i.ops[0], mask, result);
  setPredicate(w, i.ops[1], mask, no);
}

Handler setpHandler(Type t, bool isUnsigned) {
  switch (t) {
  case Type::B16:
  case Type::U16:
    return setp<uint16_t>;
  case Type::S16:
    return isUnsigned ? setp<uint16_t> : setp<int16_t>;
  case Type::B32:
  case Type::U32:
    return setp<uint32_t>;
  case Type::S32:
    return isUnsigned ? setp<uint32_t> : setp<int32_t>;
  case Type::B64:
  case Type::U64:
    return setp<uint64_t>;
  case Type::S64:
    return isUnsigned ? setp<uint64_t> : setp<int64_t>;
  case Type::F32:
    return setp<float>;
  case Type::F64:
    return setp<double>;
  case Type::F16:
    return setp<F16>;
  case Type::BF16:
    return setp<BF16>;
  default:
    return nullptr;
  }
}

bool setpBoolean(Decoder &d, const std::vector<Operand> &ops) {
  d.inst.offset = d.take("and") ? 1 : d.take("or") ? 2 : d.take("xor") ? 3 : 0;
  if (!d.inst.offset)
    return d.arity(3) && d.done();
  if (!d.arity(4) || !d.predicate(ops[3]))
    return false;
  d.inst.offset |= ops[3].negated ? 4 : 0;
  return d.done();
}

bool decodeSetp(Decoder &d) {
  Type t = d.takeType();
  const auto &ops = d.statement().operands;
  const std::string *name = d.nextMod();
  const CompareName *found = nullptr;
  for (const CompareName &c : compares)
    if (name && *name == c.name)
      found = &c;
  if (!found || ops.size() < 3)
    return false;
  d.take(found->name);
  d.take("ftz");
  d.inst.kind = found->compare | (found->orNan ? 16 : 0);
  d.inst.run = setpHandler(t, found->isUnsigned);
  bool pair = ops[0].kind == Operand::Pair;
  if (!d.predicate(pair ? ops[0].parts[0] : ops[0], true))
    return false;
  if (!pair)
    d.push(Ref());
  else if (!d.predicate(ops[0].parts[1], true))
    return false;
  return d.inst.run && d.value(ops[1], t) && d.value(ops[2], t) &&
         setpBoolean(d, ops);
}

template <typename T, int which>
void testp(Warp &w, const Instruction &i, uint32_t mask) {
  const Slot<T> *a = source<T>(w, i.ops[1]);
  uint32_t result = 0;
  eachLane(mask, [&](unsigned lane) {
    T x = bitsAs<T>(a[lane]);
    int c = std::fpclassify(x);
    bool yes = which == 0   ? c != FP_NAN && c != FP_INFINITE
               : which == 1 ? c == FP_INFINITE
               : which == 2 ? c != FP_NAN
               : which == 3 ? c == FP_NAN
               : which == 4 ? c == FP_NORMAL
                            : c == FP_SUBNORMAL;
    result |= uint32_t(yes) << lane;
  });
  setPredicate(w, i.ops[0], mask, result);
}
bool decodeTestp(Decoder &d) {
  Type t = d.takeType();
  const auto &ops = d.statement().operands;
  const char *names[] = {"finite",     "infinite", "number",
                         "notanumber", "normal",   "subnormal"};
  Handler handlers[] = {testp<float, 0>, testp<float, 1>, testp<float, 2>,
                        testp<float, 3>, testp<float, 4>, testp<float, 5>};
  for (int k = 0; k < 6; ++k)
    if (d.take(names[k]))
      d.inst.run = handlers[k];
  return d.inst.run && t == Type::F32 && d.arity(2) && d.predicate(ops[0]) &&
         d.value(ops[1], t) && d.done();
}

} // namespace

bool floatAdd(Decoder &d) { return arithmetic<Add, 2>(d); }
bool floatSub(Decoder &d) { return arithmetic<Sub, 2>(d); }
bool floatMul(Decoder &d) { return arithmetic<Mul, 2>(d); }
bool floatDiv(Decoder &d) { return arithmetic<Div, 2>(d); }
bool floatMin(Decoder &d) { return minMax<Min>(d); }
bool floatMax(Decoder &d) { return minMax<Max>(d); }
bool floatNeg(Decoder &d) { return arithmetic<Neg, 1>(d); }
bool floatAbs(Decoder &d) { return arithmetic<Abs, 1>(d); }
bool floatFma(Decoder &d) { return arithmetic<Fma, 3>(d); }

const std::vector<Opcode> &floatOpcodes() {
  static const std::vector<Opcode> table = {
      {"fma", floatFma},
      {"ex2", arithmetic<Exp2, 1>},
      {"lg2", arithmetic<Log2, 1>},
      {"rcp", arithmetic<Reciprocal, 1>},
      {"rsqrt", arithmetic<RootReciprocal, 1>},
      {"sqrt", arithmetic<Root, 1>},
      {"tanh", arithmetic<Tanh, 1>},
      {"sin", arithmetic<Sine, 1>},
      {"cos", arithmetic<Cosine, 1>},
      {"copysign", arithmetic<CopySign, 2>},
      {"setp", decodeSetp},
      {"testp", decodeTestp},
  };
  return table;
}

} // namespace kdac::ptx
