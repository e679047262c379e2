// mbarriers: arrivals, transactions and waits.
#include "Lanes.h"

#include <algorithm>

namespace kdac::ptx {

namespace {

/// The address of the mbarrier of the block's own that operand k names.
uint32_t ownAddress(Warp &w, const Instruction &i, unsigned k, unsigned lane) {
  uint32_t at = sharedAddress(w, i, k, lane, i.offset);
  if (at >= clusterStride)
    w.fail(lane, "a shared::cta access at " + std::to_string(at) +
                     ", an address of shared::cluster");
  return at;
}

/// "shared address 1024", of another block where it is one.
std::string placeOf(const Warp &w, const Cta &owner, uint32_t address) {
  return "shared address " + std::to_string(address) +
         (&owner == w.cta ? "" : " of block " + std::to_string(owner.block));
}

/// Whether its initialisation is ordered before what another block does.
bool isAnnounced(Warp &w, unsigned lane, const Cta &owner, uint32_t address,
                 const Mbarrier &b) {
  bool isReleased = b.by->releases[b.lane] != b.releases;
  if (isReleased && w.cta->clusterPassed > b.barrier)
    return true;
  unsigned thread = b.by->id * warpSize + b.lane;
  w.fail(lane, "uses the mbarrier at " + placeOf(w, owner, address) +
                   ", which thread " + std::to_string(thread) +
                   " there initialised without " +
                   (isReleased ? "a cluster barrier between"
                               : "fence.mbarrier_init.release.cluster (or "
                                 "another release at cluster scope) since"));
  return false;
}

void settlePhase(Cta &cta, Mbarrier &b) {
  if (b.pending || b.transactions)
    return;
  ++b.phase;
  b.pending = b.expected;
  ++cta.cluster.effects;
}

/// ops: mbarrier, count.
void init(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    unsigned lane = firstOf(mask);
    uint32_t at = ownAddress(w, i, 0, lane);
    uint32_t count = lane32(w, i.ops[1], lane);
    if (w.cta->cluster.failed ||
        !access(w, lane, Space::Shared, at, 8, Access::Write))
      return;
    if (count == 0 || count >= 1u << 20)
      return w.fail(lane,
                    "mbarrier.init with a count of " + std::to_string(count));
    if (w.cta->mbarriers.count(at))
      return w.fail(lane, "mbarrier.init of an mbarrier that is in use");
    // The cluster barrier that the lane has yet to arrive at.
    uint32_t barrier = w.cta->cluster.opened + (w.clusterArrived >> lane & 1);
    w.cta->mbarriers[at] = {count,  count, 0, 0, &w, lane, w.releases[lane],
                            barrier};
    ++w.cta->cluster.effects;
  }
}
void invalidate(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    unsigned lane = firstOf(mask);
    uint32_t at = ownAddress(w, i, 0, lane);
    if (w.cta->cluster.failed || !findMbarrier(w, lane, at))
      return;
    w.cta->mbarriers.erase(at);
  }
}

enum Arrival : uint8_t { Arrive = 1, Expect = 2, Complete = 4, Drop = 8 };

/// ops: state (may be none), mbarrier, count or bytes (may be none).
void arriveRun(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    unsigned lane = firstOf(mask);
    uint32_t at = i.space == Space::Shared
                      ? ownAddress(w, i, 1, lane)
                      : sharedAddress(w, i, 1, lane, i.offset);
    Mbarrier *b = w.cta->cluster.failed ? nullptr : findMbarrier(w, lane, at);
    if (!b)
      return;
    uint32_t number = i.count > 2 ? lane32(w, i.ops[2], lane) : 1;
    setLane(w, i.ops[0], lane, b->phase);
    if (i.kind & Drop)
      b->expected -= std::min(b->expected, number);
    bool ok = i.kind & Expect
                  ? arrive(w, lane, at, i.kind & Arrive ? 1 : 0, number)
              : i.kind & Complete ? arrive(w, lane, at, 0, -int64_t(number))
                                  : arrive(w, lane, at, number, 0);
    if (!ok)
      return;
  }
}

/// ops: p, mbarrier, state or parity. kind 1: parity; 2: try_wait, which waits.
void testRun(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t done = 0, firstMissing = 0;
  unsigned missing = warpSize;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    unsigned lane = firstOf(rest);
    uint32_t at = ownAddress(w, i, 1, lane);
    Mbarrier *b = w.cta->cluster.failed ? nullptr : findMbarrier(w, lane, at);
    if (!b)
      return;
    uint32_t token = uint32_t(lane64(w, i.ops[2], lane));
    bool complete =
        i.kind & 1 ? (b->phase & 1) != (token & 1) : b->phase != token;
    done |= uint32_t(complete) << lane;
    if (!complete && missing == warpSize) {
      missing = lane;
      firstMissing = at;
    }
  }
  // A try_wait may also give up: some schedules try the code around it.
  // Not twice while nothing happens, or deadlocks would never be seen.
  Cluster &cluster = w.cta->cluster;
  bool givesUp = cluster.options.seed && cluster.random() % 8 == 0 &&
                 w.gaveUp != cluster.effects;
  if (done != mask && i.kind & 2 && !givesUp) {
    w.stall = true;
    w.group().wait = Wait::Mbarrier;
    w.group().object = firstMissing;
    w.group().generation = w.cta->mbarriers[firstMissing].phase;
    return;
  }
  if (done != mask) {
    w.group().yielded = true;
    w.gaveUp = cluster.effects;
  }
  setPredicate(w, i.ops[0], mask, done);
}

void dropMbarrierHints(Decoder &d) {
  d.drop({"release", "acquire", "relaxed", "cta", "cluster"});
}
bool decodeArrive(Decoder &d, uint8_t kind) {
  const auto &ops = d.statement().operands;
  d.inst.run = arriveRun;
  d.inst.kind = kind;
  dropMbarrierHints(d);
  if (ops.empty())
    return false;
  bool returns = kind & (Arrive | Drop) && ops[0].kind != Operand::Address;
  if (d.inst.space == Space::Cluster && returns && ops[0].kind != Operand::Sink)
    return d.fail("an arrival at shared::cluster has no result");
  size_t first = returns ? 1 : 0;
  bool needsCount = kind & (Expect | Complete);
  if (!d.arity(first + 1 + needsCount, first + 2))
    return false;
  if (!returns)
    d.push(Ref());
  else if (!d.destination(ops[0], Type::B64))
    return false;
  return d.address(ops[first]) &&
         (ops.size() < first + 2 || d.value(ops[first + 1], Type::U32)) &&
         d.done();
}
bool decodeTest(Decoder &d, bool tries) {
  const auto &ops = d.statement().operands;
  if (d.inst.space == Space::Cluster)
    return d.fail("only mbarriers of shared::cta can be waited for");
  d.inst.run = testRun;
  bool parity = d.take("parity");
  d.inst.kind = (parity ? 1 : 0) | (tries ? 2 : 0);
  dropMbarrierHints(d);
  return d.arity(3, tries ? 4 : 3) && d.predicate(ops[0]) &&
         d.address(ops[1]) && d.value(ops[2], parity ? Type::U32 : Type::B64) &&
         d.done();
}
bool decodeMbarrier(Decoder &d) {
  const auto &ops = d.statement().operands;
  if (d.takeType() != Type::B64)
    return false;
  d.setSpace();
  if (d.take("init")) {
    d.inst.run = init;
    return d.arity(2) && d.address(ops[0]) && d.value(ops[1], Type::U32) &&
           d.done();
  }
  if (d.take("inval")) {
    d.inst.run = invalidate;
    return d.arity(1) && d.address(ops[0]) && d.done();
  }
  bool expects = d.take("expect_tx");
  if (d.take("arrive"))
    return decodeArrive(d, Arrive | (expects ? Expect : 0));
  if (d.take("arrive_drop"))
    return !expects && decodeArrive(d, Arrive | Drop);
  if (expects)
    return decodeArrive(d, Expect);
  if (d.take("complete_tx"))
    return decodeArrive(d, Complete);
  if (d.take("try_wait"))
    return decodeTest(d, true);
  return d.take("test_wait") && decodeTest(d, false);
}

} // namespace

Mbarrier *findMbarrier(Warp &w, unsigned lane, uint32_t address) {
  Cta *owner = sharedOwner(w, lane, address);
  if (!owner)
    return nullptr;
  auto it = owner->mbarriers.find(address);
  if (it == owner->mbarriers.end())
    return w.fail(lane,
                  "there is no mbarrier at " + placeOf(w, *owner, address)),
           nullptr;
  if (owner != w.cta && !isAnnounced(w, lane, *owner, address, it->second))
    return nullptr;
  return &it->second;
}

bool arrive(Warp &w, unsigned lane, uint32_t address, uint32_t count,
            int64_t transactions) {
  Mbarrier *b = findMbarrier(w, lane, address);
  Cta *owner = b ? sharedOwner(w, lane, address) : nullptr;
  if (!owner)
    return false;
  if (count > b->pending) {
    w.fail(lane, "more arrivals at the mbarrier at " +
                     placeOf(w, *owner, address) + " than its " +
                     std::to_string(b->expected) + " in one phase");
    return false;
  }
  b->pending -= count;
  b->transactions += transactions;
  if (b->transactions >= 1 << 20 || b->transactions <= -(1 << 20)) {
    w.fail(lane, "an mbarrier's transaction count beyond 2^20 - 1");
    return false;
  }
  ++w.cta->cluster.effects;
  settlePhase(*owner, *b);
  return true;
}

const std::vector<Opcode> &mbarrierOpcodes() {
  static const std::vector<Opcode> table = {{"mbarrier", decodeMbarrier}};
  return table;
}

} // namespace kdac::ptx
