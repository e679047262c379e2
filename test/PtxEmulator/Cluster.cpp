// The scheduler: warps of a cluster, in turn or at random. And what its blocks
// share: addresses, a barrier, copies from one to the other.
#include "Machine.h"

#include <algorithm>
#include <utility>

namespace kdac::ptx {

//===--- setting up ---------------------------------------------------------//

Cluster::Cluster(const Program &program, const Memory &memory,
                 const Memory *globals, const Launch &launch,
                 const Options &options, uint64_t number,
                 std::vector<uint8_t> &registers)
    : program(program), memory(memory), globals(globals), launch(launch),
      options(options), number(number),
      random(options.seed * 1000003 + number) {
  const unsigned *given = clusterOf(program, launch);
  uint64_t rest = number;
  for (unsigned i = 0; i < 3; ++i) {
    size[i] = std::max(1u, given[i]);
    index[i] = unsigned(rest % (launch.grid[i] / size[i]));
    rest /= launch.grid[i] / size[i];
  }
  unsigned count = size[0] * size[1] * size[2];
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  size_t perCta =
      registerBytesOfWarp(program) * ((threads + warpSize - 1) / warpSize);
  registers.resize(perCta * count);
  for (unsigned rank = 0; rank < count; ++rank)
    ctas.push_back(
        std::make_unique<Cta>(*this, rank, registers.data() + rank * perCta));
}

std::string Cluster::name() const {
  std::string text;
  for (auto &cta : ctas)
    text += (text.empty() ? "" : ", ") + std::to_string(cta->block);
  return ctas.size() == 1
             ? "block " + text
             : "cluster " + std::to_string(number) + " (blocks " + text + ")";
}

//===--- running ------------------------------------------------------------//

/// Completes one of the asynchronous copies that nobody waits for by name.
bool Cluster::finishSomething() {
  if (!bulk.empty()) {
    size_t which = options.seed ? random() % bulk.size() : 0;
    auto [warp, op] = bulk[which];
    bulk.erase(bulk.begin() + static_cast<long>(which));
    execute(*warp, op);
    return true;
  }
  bool any = false;
  for (auto &cta : ctas)
    for (Warp &w : cta->warps)
      for (auto &queue : w.copies)
        while (!queue.empty() && !failed) {
          AsyncOp op = queue.take();
          execute(w, op);
          any = true;
        }
  return any;
}

/// Lets every warp run a while. False: none could.
bool Cluster::runRound(std::vector<Warp *> &order, bool &alive,
                       uint64_t &executed) {
  bool progress = false, skipped = false;
  if (options.seed)
    std::shuffle(order.begin(), order.end(), random);
  // At times one block runs well ahead of the others.
  if (options.seed && ctas.size() > 1 && random() % 32 == 0)
    ahead = int(random() % (ctas.size() + 1)) - 1;
  for (Warp *w : order) {
    if (w->groups.empty())
      continue;
    alive = true;
    if (ahead >= 0 && int(w->cta->rank) != ahead && random() % 16) {
      skipped = true;
      continue;
    }
    uint64_t before = w->executed;
    progress |= w->cta->runWarp(*w, options.seed ? 1 + random() % 300 : 256);
    executed += w->executed - before;
    if (failed)
      return false;
  }
  if (!progress && skipped)
    ahead = -1;
  return progress || skipped;
}

bool Cluster::run() {
  std::vector<Warp *> order;
  for (auto &cta : ctas)
    for (Warp &w : cta->warps)
      order.push_back(&w);
  uint64_t seen = effects, since = 0;
  while (!failed) {
    bool alive = false;
    bool progress = runRound(order, alive, since);
    if (failed)
      return false;
    if (!alive)
      break;
    bool starving = since > options.limit / 64;
    if (options.late &&
        (!progress || starving || (options.seed && random() % 4 == 0)))
      progress |= finishSomething();
    if (effects != seen) {
      seen = effects;
      since = 0;
    }
    if (progress && since < options.limit)
      continue;
    error = program.name + ": " + (progress ? "livelock" : "deadlock") +
            " in " + name();
    for (auto &cta : ctas)
      error += cta->blockedReport();
    failed = true;
  }
  for (auto &[warp, op] : std::exchange(bulk, {}))
    if (op.kind == AsyncOp::BulkCopy && !failed)
      execute(*warp, op);
  for (auto &cta : ctas) {
    for (Warp &w : cta->warps) {
      for (auto &queue : w.bulk)
        while (!queue.empty() && !failed)
          execute(w, queue.take());
      stats.warpInstructions += w.executed;
      stats.threadInstructions += w.threads;
    }
    if (failed || !cta->checkWarpgroups())
      return false;
  }
  return true;
}

//===--- shared memory of other blocks --------------------------------------//

Cta *sharedOwner(Warp &w, unsigned lane, uint32_t &address) {
  Cta &own = *w.cta;
  uint32_t place = address / clusterStride;
  if (place == 0)
    return &own;
  if (place > own.cluster.ctas.size())
    return w.fail(lane, "a shared::cluster address of no block of the cluster"),
           nullptr;
  address %= clusterStride;
  Cta &owner = *own.cluster.ctas[place - 1];
  if (&owner == &own)
    return &own;
  if (own.clusterPassed == 0)
    w.fail(lane, "reaches into block " + std::to_string(owner.block) +
                     " before any cluster barrier: it may not have begun");
  else if (owner.running == 0)
    w.fail(lane, "reaches into the shared memory of block " +
                     std::to_string(owner.block) + ", which has exited");
  return own.cluster.failed ? nullptr : &owner;
}

//===--- copies -------------------------------------------------------------//

/// "writes shared memory of block 1 at 2048, which a copy ... reads".
static bool clash(Warp &w, const Cta &cta, unsigned lane, size_t unit,
                  bool isWrite) {
  bool copyWrites = cta.copies[unit].into != 0;
  w.fail(lane, std::string(isWrite ? "writes" : "reads") +
                   " shared memory of block " + std::to_string(cta.block) +
                   " at " + std::to_string(sharedBase + unit * 16) +
                   ", which a copy within the cluster that has not completed " +
                   (copyWrites ? "writes" : "reads"));
  return false;
}

static bool markUnits(Warp &w, const AsyncOp &op, uint32_t address, bool into,
                      int change) {
  Cta *cta = sharedOwner(w, op.lane, address);
  if (!cta)
    return false;
  cta->copies.resize(cta->shared.size() / 16 + 1);
  for (uint32_t at = 0; at < op.bytes; at += 16) {
    size_t unit = (address + at - sharedBase) / 16;
    if (address < sharedBase || unit >= cta->copies.size())
      break; // copying it is an error, said elsewhere
    Cta::Copies &c = cta->copies[unit];
    if (change > 0 && (c.into || (into && c.from)))
      return clash(w, *cta, op.lane, unit, into);
    uint16_t &count = into ? c.into : c.from;
    count = uint16_t(count + change);
  }
  return true;
}

bool markCopy(Warp &w, const AsyncOp &op, int change) {
  return markUnits(w, op, uint32_t(op.global), false, change) &&
         markUnits(w, op, op.shared, true, change);
}

bool checkCopies(Warp &w, Cta &cta, unsigned lane, uint32_t at, unsigned bytes,
                 Access how) {
  bool isWrite = how == Access::Write;
  for (size_t unit = at / 16; unit <= (at + bytes - 1) / 16; ++unit)
    if (cta.copies[unit].into || (isWrite && cta.copies[unit].from))
      return clash(w, cta, lane, unit, isWrite);
  return true;
}

//===--- the barrier --------------------------------------------------------//

std::string Cluster::arrivedReport() const {
  int arrived = 0, live = 0;
  for (auto &cta : ctas)
    for (const Warp &w : cta->warps) {
      arrived += __builtin_popcount(w.clusterArrived & w.live);
      live += __builtin_popcount(w.live);
    }
  return std::to_string(arrived) + " of " + std::to_string(live);
}

void Cluster::checkBarrier() {
  bool any = false;
  for (auto &cta : ctas)
    for (const Warp &w : cta->warps) {
      if (w.live & ~w.clusterArrived)
        return;
      any |= w.clusterArrived != 0;
    }
  if (!any)
    return;
  for (auto &cta : ctas)
    for (Warp &w : cta->warps)
      w.clusterArrived = 0;
  ++opened;
  ++effects;
}

void arriveAtCluster(Warp &w, uint32_t mask, bool releases) {
  if (uint32_t twice = w.clusterPending & mask)
    return w.fail(firstOf(twice),
                  "arrives at the cluster barrier twice without "
                  "barrier.cluster.wait between");
  if (releases)
    eachLane(mask, [&](unsigned lane) { ++w.releases[lane]; });
  w.clusterPending |= mask;
  w.clusterArrived |= mask;
  ++w.cta->cluster.effects;
  w.cta->cluster.checkBarrier();
}

void waitForCluster(Warp &w, uint32_t mask) {
  if (uint32_t without = mask & ~w.clusterPending)
    return w.fail(firstOf(without), "barrier.cluster.wait without "
                                    "barrier.cluster.arrive before it");
  w.clusterPending &= ~mask;
  if (w.clusterArrived & mask) {
    w.stall = true;
    w.group().wait = Wait::Cluster;
    return;
  }
  w.cta->clusterPassed = w.cta->cluster.opened;
}

} // namespace kdac::ptx
