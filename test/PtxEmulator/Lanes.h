// Promises: handlers made from functions of values, applied lane by lane.
// Does not: touch memory.
#ifndef KDAC_PTXEMULATOR_LANES_H
#define KDAC_PTXEMULATOR_LANES_H

#include "Decoder.h"
#include "Machine.h"

namespace kdac::ptx {

template <typename R, typename A, typename F>
void map1(Warp &w, const Instruction &i, uint32_t mask, F f) {
  Slot<R> *d = target<R>(w, i.ops[0]);
  const Slot<A> *a = source<A>(w, i.ops[1]);
  eachLane(mask,
           [&](unsigned lane) { d[lane] = toSlot<R>(f(bitsAs<A>(a[lane]))); });
}

template <typename R, typename A, typename B, typename F>
void map2(Warp &w, const Instruction &i, uint32_t mask, F f) {
  Slot<R> *d = target<R>(w, i.ops[0]);
  const Slot<A> *a = source<A>(w, i.ops[1]);
  const Slot<B> *b = source<B>(w, i.ops[2]);
  eachLane(mask, [&](unsigned lane) {
    d[lane] = toSlot<R>(f(bitsAs<A>(a[lane]), bitsAs<B>(b[lane])));
  });
}

template <typename R, typename A, typename B, typename C, typename F>
void map3(Warp &w, const Instruction &i, uint32_t mask, F f) {
  Slot<R> *d = target<R>(w, i.ops[0]);
  const Slot<A> *a = source<A>(w, i.ops[1]);
  const Slot<B> *b = source<B>(w, i.ops[2]);
  const Slot<C> *c = source<C>(w, i.ops[3]);
  eachLane(mask, [&](unsigned lane) {
    d[lane] = toSlot<R>(
        f(bitsAs<A>(a[lane]), bitsAs<B>(b[lane]), bitsAs<C>(c[lane])));
  });
}

// The handlers of an operation `Op`, a type with operator().
template <typename Op, typename T>
void unary(Warp &w, const Instruction &i, uint32_t mask) {
  map1<T, T>(w, i, mask, [](T a) -> T { return Op()(a); });
}
template <typename Op, typename T>
void binary(Warp &w, const Instruction &i, uint32_t mask) {
  map2<T, T, T>(w, i, mask, [](T a, T b) -> T { return Op()(a, b); });
}
template <typename Op, typename T>
void ternary(Warp &w, const Instruction &i, uint32_t mask) {
  map3<T, T, T, T>(w, i, mask,
                   [](T a, T b, T c) -> T { return Op()(a, b, c); });
}

/// Types without a sign that matters.
template <typename Op> Handler bitwiseBinary(Type t) {
  switch (bitsOf(t)) {
  case 16:
    return binary<Op, uint16_t>;
  case 32:
    return binary<Op, uint32_t>;
  case 64:
    return binary<Op, uint64_t>;
  default:
    return nullptr;
  }
}
template <typename Op> Handler bitwiseUnary(Type t) {
  switch (bitsOf(t)) {
  case 16:
    return unary<Op, uint16_t>;
  case 32:
    return unary<Op, uint32_t>;
  case 64:
    return unary<Op, uint64_t>;
  default:
    return nullptr;
  }
}
template <typename Op> Handler integerBinary(Type t) {
  switch (t) {
  case Type::U16:
    return binary<Op, uint16_t>;
  case Type::S16:
    return binary<Op, int16_t>;
  case Type::U32:
    return binary<Op, uint32_t>;
  case Type::S32:
    return binary<Op, int32_t>;
  case Type::U64:
    return binary<Op, uint64_t>;
  case Type::S64:
    return binary<Op, int64_t>;
  default:
    return nullptr;
  }
}

inline bool isInteger(Type t) { return t >= Type::B8 && t <= Type::S64; }

/// Destination and `n` sources of one type.
inline bool uniformOperands(Decoder &d, Type t, size_t n) {
  if (!d.arity(n + 1))
    return false;
  if (!d.destination(d.statement().operands[0], t))
    return false;
  for (size_t i = 1; i <= n; ++i)
    if (!d.value(d.statement().operands[i], t))
      return false;
  return d.done();
}

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_LANES_H
