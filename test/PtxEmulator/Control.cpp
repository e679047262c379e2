// Moves, branches, barriers, fences, and what is only a hint.
#include "Lanes.h"

#include <algorithm>

namespace kdac::ptx {

namespace {

//===--- mov ----------------------------------------------------------------//

template <typename T> void move(Warp &w, const Instruction &i, uint32_t mask) {
  Slot<T> *d = target<T>(w, i.ops[0]);
  const Slot<T> *a = source<T>(w, i.ops[1]);
  eachLane(mask, [&](unsigned lane) { d[lane] = a[lane]; });
}
void movePredicate(Warp &w, const Instruction &i, uint32_t mask) {
  setPredicate(w, i.ops[0], mask, predicateOf(w, i.ops[1]));
}
void moveClock(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask,
           [&](unsigned lane) { setLane(w, i.ops[0], lane, w.executed); });
}
/// ops: the whole, then the parts. offset: bits of a part.
void join(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    uint64_t whole = 0;
    for (unsigned k = 1; k < i.count; ++k)
      whole |= lane64(w, i.ops[k], lane) << ((k - 1) * unsigned(i.offset));
    setLane(w, i.ops[0], lane, whole);
  });
}
void split(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    uint64_t whole = lane64(w, i.ops[i.count - 1], lane);
    for (unsigned k = 0; k + 1 < i.count; ++k)
      setLane(w, i.ops[k], lane, whole >> (k * unsigned(i.offset)));
  });
}

Type typeOfBits(unsigned bits) {
  return bits == 8    ? Type::B8
         : bits == 16 ? Type::B16
         : bits == 32 ? Type::B32
         : bits == 64 ? Type::B64
                      : Type::None;
}

bool decodeMove(Decoder &d) {
  Type t = d.takeType();
  const auto &ops = d.statement().operands;
  if (!d.arity(2) || !d.done())
    return false;
  if (t == Type::Pred) {
    d.inst.run = movePredicate;
    return d.predicate(ops[0]) && d.predicate(ops[1]);
  }
  for (const char *clock :
       {"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo"})
    if (ops[1].name == clock) {
      d.inst.run = moveClock;
      return d.destination(ops[0], t);
    }
  bool joins = ops[1].kind == Operand::List;
  if (joins || ops[0].kind == Operand::List) {
    const Operand &list = joins ? ops[1] : ops[0];
    unsigned bits = bitsOf(t) / unsigned(list.parts.size());
    Type part = typeOfBits(bits);
    d.inst.run = joins ? join : split;
    d.inst.offset = bits;
    if (bits < 16)
      return false;
    return joins ? d.destination(ops[0], t) && d.list(list, part, false, true)
                 : d.list(list, part, true, true) && d.value(ops[1], t);
  }
  d.inst.run = bitsOf(t) == 64 ? move<uint64_t> : move<uint32_t>;
  d.inst.isMove = true;
  return bitsOf(t) >= 16 && d.destination(ops[0], t) && d.value(ops[1], t);
}

//===--- branches -----------------------------------------------------------//

void branch(Warp &w, const Instruction &i, uint32_t mask) {
  if (mask == w.mask) {
    w.nextPc = i.target;
    return;
  }
  w.group().mask = w.mask & ~mask;
  w.group().pc = w.pc + 1;
  Group taken;
  taken.mask = mask;
  taken.pc = i.target;
  w.groups.push_back(taken);
  w.regroup = true;
}
bool decodeBranch(Decoder &d) {
  d.take("uni");
  d.inst.run = branch;
  return d.arity(1) && d.label(d.statement().operands[0]) && d.done();
}

void leave(Warp &w, const Instruction &, uint32_t mask) {
  w.live &= ~mask;
  if (!w.live && w.anyInFlight)
    return w.fail(firstOf(mask), "exits before a wgmma has been waited for");
  w.group().mask &= ~mask;
  w.group().pc = w.pc + 1;
  w.regroup = true;
  ++w.cta->cluster.effects;
  w.cta->running -= !w.live;
  for (unsigned number = 0; number < 16; ++number)
    w.cta->checkBarrier(number);
  w.cta->cluster.checkBarrier();
}
bool decodeLeave(Decoder &d) {
  d.take("uni");
  d.inst.run = leave;
  return d.arity(0) && d.done();
}
void trap(Warp &w, const Instruction &, uint32_t mask) {
  w.fail(unsigned(__builtin_ctz(mask)), "trap");
}
bool decodeTrap(Decoder &d) {
  d.inst.run = trap;
  return d.arity(0) && d.done();
}

//===--- barriers -----------------------------------------------------------//

/// ops: number, threads (none: the CTA's). kind: 1 arrives only, 2 aligned.
void barrier(Warp &w, const Instruction &i, uint32_t mask) {
  Cta &cta = *w.cta;
  unsigned lane = unsigned(__builtin_ctz(mask));
  uint32_t number = lane32(w, i.ops[0], lane);
  uint32_t threads = i.count > 1 ? lane32(w, i.ops[1], lane) : 0;
  if (number > 15)
    return w.fail(lane, "barrier number " + std::to_string(number));
  if (i.count > 1 && (threads == 0 || threads % warpSize))
    return w.fail(lane, "a barrier of " + std::to_string(threads) + " threads");
  BarrierState &b = cta.barriers[number];
  if (b.arrived && b.expected != threads)
    return w.fail(lane, "barrier " + std::to_string(number) + " of " +
                            std::to_string(threads) +
                            " threads, but others gave " +
                            std::to_string(b.expected));
  b.expected = threads;
  b.arrived += i.kind & 2 ? warpSize : unsigned(__builtin_popcount(mask));
  if (threads && b.arrived > threads)
    return w.fail(lane, "more than " + std::to_string(threads) +
                            " threads arrive at barrier " +
                            std::to_string(number));
  uint32_t generation = b.generation;
  ++cta.cluster.effects;
  cta.checkBarrier(number);
  if (i.kind & 1 || b.generation != generation)
    return;
  w.stall = true;
  w.group().wait = Wait::Barrier;
  w.group().object = number;
  w.group().generation = generation;
}

bool decodeWarpBarrier(Decoder &d) {
  d.take("sync");
  d.inst.converge = Converge::Members;
  d.inst.run = [](Warp &, const Instruction &, uint32_t) {};
  return d.arity(1) && d.value(d.statement().operands[0], Type::B32) &&
         d.done();
}
bool decodeBarrier(Decoder &d, bool aligned) {
  if (d.take("warp"))
    return decodeWarpBarrier(d);
  d.take("cta");
  const auto &ops = d.statement().operands;
  aligned |= d.take("aligned");
  d.inst.kind = aligned ? 2 : 0;
  d.inst.converge = aligned ? Converge::Warp : Converge::None;
  d.inst.run = barrier;
  if (d.take("arrive"))
    d.inst.kind |= 1;
  else if (!d.take("sync"))
    return false;
  if (!d.arity(d.inst.kind & 1 ? 2 : 1, 2))
    return false;
  for (const Operand &op : ops)
    if (!d.value(op, Type::B32))
      return false;
  return d.done();
}
void nothing(Warp &, const Instruction &, uint32_t) {}

bool decodeBar(Decoder &d) { return decodeBarrier(d, true); }
bool decodeGeneralBarrier(Decoder &d) {
  if (!d.take("cluster"))
    return decodeBarrier(d, false);
  d.inst.converge = d.take("aligned") ? Converge::Warp : Converge::None;
  if (d.take("arrive")) {
    d.inst.kind = d.take("relaxed");
    if (!d.inst.kind)
      d.take("release");
    d.inst.run = [](Warp &w, const Instruction &i, uint32_t mask) {
      arriveAtCluster(w, mask, !i.kind);
    };
    return d.arity(0) && d.done();
  }
  d.take("acquire");
  d.inst.run = [](Warp &w, const Instruction &, uint32_t mask) {
    waitForCluster(w, mask);
  };
  return d.take("wait") && d.arity(0) && d.done();
}

//===--- fences and hints ---------------------------------------------------//

/// What a fence orders, beyond its block's ordinary accesses.
enum Fence : uint8_t { OwnProxy = 1, RemoteProxy = 2, Release = 4 };
void fence(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    w.proxyEpoch[lane] += (i.kind & OwnProxy) != 0;
    w.remoteProxyEpoch[lane] += (i.kind & RemoteProxy) != 0;
    w.releases[lane] += (i.kind & Release) != 0;
  });
}
bool decodeFence(Decoder &d) {
  const auto &mods = d.statement().mods;
  auto has = [&](const char *prefix) {
    return std::any_of(mods.begin(), mods.end(), [&](const std::string &mod) {
      return mod.rfind(prefix, 0) == 0;
    });
  };
  if (has("async"))
    d.inst.kind = has("global")        ? 0
                  : has("shared::cta") ? OwnProxy
                                       : OwnProxy | RemoteProxy;
  else if (!has("acquire") && (has("cluster") || has("gpu") || has("sys")))
    d.inst.kind = Release;
  d.inst.run = d.inst.kind ? fence : nothing;
  d.drop({"proxy", "async", "async::generic", "alias", "sc", "acq_rel",
          "acquire", "release", "cta", "cluster", "gpu", "sys", "global",
          "shared::cta", "shared::cluster", "mbarrier_init",
          "sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  return d.done();
}
bool decodeMembar(Decoder &d) {
  d.inst.run = nothing;
  d.drop({"cta", "gl", "sys", "proxy"});
  return d.done();
}
bool ignore(Decoder &d) {
  d.inst.run = nothing;
  return true;
}
void sleep(Warp &w, const Instruction &, uint32_t) { w.group().yielded = true; }
bool decodeSleep(Decoder &d) {
  d.inst.run = sleep;
  return true;
}
/// kind 1: inc. The sum over warps is checked as values change.
void setRegisters(Warp &w, const Instruction &i, uint32_t mask) {
  unsigned lane = unsigned(__builtin_ctz(mask));
  w.cta->changeRegisters(w, lane, uint32_t(i.offset), i.kind);
}
bool decodeSetmaxnreg(Decoder &d) {
  const auto &ops = d.statement().operands;
  d.inst.run = setRegisters;
  d.inst.kind = d.take("inc");
  d.drop({"dec", "sync", "aligned"});
  d.inst.converge = Converge::Warp;
  if (!d.arity(1) || !d.integer(ops[0], d.inst.offset))
    return false;
  if (d.inst.offset % 8 || d.inst.offset < 24 || d.inst.offset > 256)
    return d.fail("expected a multiple of 8 from 24 to 256");
  return d.takeType() == Type::U32 && d.done();
}

} // namespace

const std::vector<Opcode> &controlOpcodes() {
  static const std::vector<Opcode> table = {
      {"mov", decodeMove},
      {"bra", decodeBranch},
      {"ret", decodeLeave},
      {"exit", decodeLeave},
      {"trap", decodeTrap},
      {"bar", decodeBar},
      {"barrier", decodeGeneralBarrier},
      {"fence", decodeFence},
      {"membar", decodeMembar},
      {"prefetch", ignore},
      {"prefetchu", ignore},
      {"createpolicy", ignore},
      {"applypriority", ignore},
      {"discard", ignore},
      {"nanosleep", decodeSleep},
      {"griddepcontrol", ignore}, // launches do not overlap
      {"setmaxnreg", decodeSetmaxnreg},
      {"pmevent", ignore},
      {"brkpt", decodeTrap},
  };
  return table;
}

} // namespace kdac::ptx
