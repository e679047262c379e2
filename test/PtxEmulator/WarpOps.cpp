// Exchanges between the lanes of a warp.
#include "Lanes.h"

namespace kdac::ptx {

namespace {

unsigned firstOf(uint32_t mask) { return unsigned(__builtin_ctz(mask)); }

//===--- shfl ---------------------------------------------------------------//

enum Mode : uint8_t { Up, Down, Butterfly, Index };

/// ops: d, p (may be none), a, b, c, members. kind: the mode.
void shuffle(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t values[warpSize], in = 0;
  std::memcpy(values, read(w, i.ops[2]), sizeof values);
  uint32_t result[warpSize];
  if (i.kind == Butterfly && mask == allLanes && !i.ops[1].bits &&
      i.ops[3].constant && i.ops[4].constant && lane32(w, i.ops[4], 0) == 31) {
    // What nearly all reductions are made of.
    unsigned other = lane32(w, i.ops[3], 0) & 31;
    uint32_t *d = target<uint32_t>(w, i.ops[0]);
    for (unsigned lane = 0; lane < warpSize; ++lane)
      d[lane] = values[lane ^ other];
    return;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = firstOf(rest);
    uint32_t b = lane32(w, i.ops[3], lane) & 31;
    uint32_t c = lane32(w, i.ops[4], lane);
    uint32_t segment = c >> 8 & 31, clamp = c & 31;
    uint32_t low = lane & segment, high = low | (clamp & ~segment);
    uint32_t from = i.kind == Up          ? lane - b
                    : i.kind == Down      ? lane + b
                    : i.kind == Butterfly ? lane ^ b
                                          : low | (b & ~segment);
    // up clamps from below: c is the lowest lane then.
    bool inside = i.kind == Up ? int32_t(from) >= int32_t(high) : from <= high;
    if (!inside)
      from = lane;
    if (!(mask >> from & 1))
      return w.fail(lane, "shfl reads lane " + std::to_string(from) +
                              ", which does not take part");
    result[lane] = values[from];
    in |= uint32_t(inside) << lane;
  }
  eachLane(mask,
           [&](unsigned lane) { setLane(w, i.ops[0], lane, result[lane]); });
  setPredicate(w, i.ops[1], mask, in);
}

bool decodeShuffle(Decoder &d) {
  const char *names[] = {"up", "down", "bfly", "idx"};
  const auto &ops = d.statement().operands;
  Type t = d.takeType();
  if (!d.take("sync") || bitsOf(t) != 32 || !d.arity(5))
    return false;
  d.inst.kind = 255;
  for (uint8_t k = 0; k < 4; ++k)
    if (d.take(names[k]))
      d.inst.kind = k;
  d.inst.run = shuffle;
  d.inst.converge = Converge::Members;
  bool pair = ops[0].kind == Operand::Pair;
  if (!d.destination(pair ? ops[0].parts[0] : ops[0], t))
    return false;
  if (!pair)
    d.push(Ref());
  else if (!d.predicate(ops[0].parts[1], true))
    return false;
  for (size_t k = 1; k < 5; ++k)
    if (!d.value(ops[k], Type::B32))
      return false;
  return d.inst.kind != 255 && d.done();
}

//===--- votes --------------------------------------------------------------//

enum Vote : uint8_t { All, Any, Uniform, Ballot };

/// ops: d, p, members. offset: 1 negates p.
void vote(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t p = predicateOf(w, i.ops[1]) ^ (i.offset ? allLanes : 0);
  p &= mask;
  if (i.kind == Ballot)
    return eachLane(mask,
                    [&](unsigned lane) { setLane(w, i.ops[0], lane, p); });
  bool yes = i.kind == All   ? p == mask
             : i.kind == Any ? p != 0
                             : p == 0 || p == mask;
  setPredicate(w, i.ops[0], mask, yes ? allLanes : 0);
}
bool decodeVote(Decoder &d) {
  const char *names[] = {"all", "any", "uni", "ballot"};
  const auto &ops = d.statement().operands;
  Type t = d.takeType();
  d.inst.kind = 255;
  for (uint8_t k = 0; k < 4; ++k)
    if (d.take(names[k]))
      d.inst.kind = k;
  d.inst.run = vote;
  d.inst.converge = Converge::Members;
  if (!d.take("sync") || d.inst.kind == 255 || !d.arity(3))
    return false;
  d.inst.offset = ops[1].negated;
  return (t == Type::Pred ? d.predicate(ops[0]) : d.destination(ops[0], t)) &&
         d.predicate(ops[1]) && d.value(ops[2], Type::B32) && d.done();
}

/// ops: d, p, a, members. kind 1: all.
void match(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t result[warpSize], same = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = firstOf(rest);
    uint64_t mine = lane64(w, i.ops[2], lane);
    uint32_t equal = 0;
    eachLane(mask, [&](unsigned other) {
      equal |= uint32_t(lane64(w, i.ops[2], other) == mine) << other;
    });
    result[lane] = i.kind ? (equal == mask ? mask : 0) : equal;
    same |= uint32_t(equal == mask) << lane;
  }
  eachLane(mask,
           [&](unsigned lane) { setLane(w, i.ops[0], lane, result[lane]); });
  setPredicate(w, i.ops[1], mask, same);
}
bool decodeMatch(Decoder &d) {
  const auto &ops = d.statement().operands;
  Type t = d.takeType();
  d.inst.kind = d.take("all");
  if ((!d.inst.kind && !d.take("any")) || !d.take("sync") || !d.arity(3))
    return false;
  d.inst.run = match;
  d.inst.converge = Converge::Members;
  bool pair = ops[0].kind == Operand::Pair;
  if (!d.destination(pair ? ops[0].parts[0] : ops[0], Type::B32))
    return false;
  if (!pair)
    d.push(Ref());
  else if (!d.predicate(ops[0].parts[1], true))
    return false;
  return d.value(ops[1], t) && d.value(ops[2], Type::B32) && d.done();
}

//===--- reductions, elections ----------------------------------------------//

template <typename T> T reduce(unsigned kind, T a, T b) {
  switch (kind) {
  case 0:
    return T(uint32_t(a) + uint32_t(b));
  case 1:
    return a < b ? a : b;
  case 2:
    return a < b ? b : a;
  case 3:
    return a & b;
  case 4:
    return a | b;
  default:
    return a ^ b;
  }
}
/// ops: d, a, members.
template <typename T> void redux(Warp &w, const Instruction &i, uint32_t mask) {
  const uint32_t *a = source<uint32_t>(w, i.ops[1]);
  T sum = bitsAs<T>(a[firstOf(mask)]);
  for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1)
    sum = reduce(i.kind, sum, bitsAs<T>(a[firstOf(rest)]));
  eachLane(mask,
           [&](unsigned lane) { setLane(w, i.ops[0], lane, uint32_t(sum)); });
}
bool decodeRedux(Decoder &d) {
  const char *names[] = {"add", "min", "max", "and", "or", "xor"};
  const auto &ops = d.statement().operands;
  Type t = d.takeType();
  d.inst.kind = 255;
  for (uint8_t k = 0; k < 6; ++k)
    if (d.take(names[k]))
      d.inst.kind = k;
  d.inst.run = t == Type::S32 ? redux<int32_t> : redux<uint32_t>;
  d.inst.converge = Converge::Members;
  return d.inst.kind != 255 && isInteger(t) && d.take("sync") && d.arity(3) &&
         d.destination(ops[0], t) && d.value(ops[1], t) &&
         d.value(ops[2], Type::B32) && d.done();
}

/// ops: d, p, members.
void elect(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned leader = firstOf(mask);
  eachLane(mask, [&](unsigned lane) { setLane(w, i.ops[0], lane, leader); });
  setPredicate(w, i.ops[1], mask, uint32_t(1) << leader);
}
bool decodeElect(Decoder &d) {
  const auto &ops = d.statement().operands;
  d.inst.run = elect;
  d.inst.converge = Converge::Members;
  return d.take("sync") && d.arity(2) && ops[0].kind == Operand::Pair &&
         d.destination(ops[0].parts[0], Type::B32) &&
         d.predicate(ops[0].parts[1]) && d.value(ops[1], Type::B32) && d.done();
}
void activeMask(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) { setLane(w, i.ops[0], lane, w.mask); });
}
bool decodeActiveMask(Decoder &d) {
  d.inst.run = activeMask;
  return d.takeType() == Type::B32 && d.arity(1) &&
         d.destination(d.statement().operands[0], Type::B32) && d.done();
}

} // namespace

const std::vector<Opcode> &warpOpcodes() {
  static const std::vector<Opcode> table = {
      {"shfl", decodeShuffle}, {"vote", decodeVote},
      {"match", decodeMatch},  {"redux", decodeRedux},
      {"elect", decodeElect},  {"activemask", decodeActiveMask},
  };
  return table;
}

} // namespace kdac::ptx
