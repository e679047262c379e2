// A CTA: its state at the start, steps of its warps, barriers, and reports.
#include "Machine.h"

#include <algorithm>
#include <cstdio>

namespace kdac::ptx {

const Instruction &Warp::inst() const {
  return cta->program.code[static_cast<size_t>(pc)];
}

std::string Cta::where(const Warp &warp, int32_t pc, unsigned lane) const {
  size_t at = static_cast<size_t>(pc);
  unsigned thread = warp.id * warpSize + lane;
  return "PTX line " + std::to_string(program.code[at].line) + ", block " +
         std::to_string(block) + ", thread " + std::to_string(thread) + ": " +
         program.text[at];
}

void Warp::fail(unsigned lane, const std::string &what) {
  Cluster &cluster = cta->cluster;
  if (!cluster.failed)
    cluster.error =
        cta->program.name + ": " + what + "\n  " + cta->where(*this, pc, lane);
  cluster.failed = true;
}

//===--- setting up ---------------------------------------------------------//

static void setSpecial(uint8_t *registers, Special which, unsigned lane,
                       uint32_t value) {
  std::memcpy(registers + (which * warpSize + lane) * 4, &value, 4);
}

static void setSpecials(const Cta &cta, const Warp &w) {
  const unsigned *n = cta.launch.block, *grid = cta.launch.grid;
  const unsigned *size = cta.cluster.size, *cluster = cta.cluster.index;
  bool isExplicit = clusterOf(cta.program, cta.launch)[0] != 0;
  uint32_t warps = static_cast<uint32_t>(cta.warps.size());
  uint32_t sms = static_cast<uint32_t>(cta.options.multiprocessors);
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    unsigned t = w.id * warpSize + lane;
    uint32_t bit = uint32_t(1) << lane;
    const uint32_t values[SpecialCount] = {t % n[0],
                                           t / n[0] % n[1],
                                           t / n[0] / n[1],
                                           n[0],
                                           n[1],
                                           n[2],
                                           cta.index[0],
                                           cta.index[1],
                                           cta.index[2],
                                           grid[0],
                                           grid[1],
                                           grid[2],
                                           lane,
                                           w.id,
                                           warps,
                                           uint32_t(cta.block) % sms,
                                           sms,
                                           cta.launch.dynamicShared,
                                           cta.index[0] % size[0],
                                           cta.index[1] % size[1],
                                           cta.index[2] % size[2],
                                           size[0],
                                           size[1],
                                           size[2],
                                           cluster[0],
                                           cluster[1],
                                           cluster[2],
                                           grid[0] / size[0],
                                           grid[1] / size[1],
                                           grid[2] / size[2],
                                           cta.rank,
                                           size[0] * size[1] * size[2],
                                           isExplicit ? allLanes : 0,
                                           bit,
                                           bit - 1,
                                           bit | (bit - 1),
                                           ~(bit | (bit - 1)),
                                           ~(bit - 1),
                                           uint32_t(cta.shared.size())};
    for (uint32_t k = 0; k < SpecialCount; ++k)
      setSpecial(w.registers, Special(k), lane, values[k]);
  }
}

Cta::Cta(Cluster &cluster, uint32_t rank, uint8_t *registers)
    : cluster(cluster), program(cluster.program), memory(cluster.memory),
      globals(cluster.globals), launch(cluster.launch),
      options(cluster.options), rank(rank),
      threads(launch.block[0] * launch.block[1] * launch.block[2]),
      shared(program.staticShared + launch.dynamicShared, 0xff),
      valid(shared.size()), writers(shared.size() / 4 + 1),
      lastReaders(shared.size() / 4 + 1),
      warps((threads + warpSize - 1) / warpSize),
      running(unsigned(warps.size())) {
  if (program.usesWgmma)
    readers.resize(shared.size() / 16 + 1);
  const unsigned *size = cluster.size;
  index[0] = cluster.index[0] * size[0] + rank % size[0];
  index[1] = cluster.index[1] * size[1] + rank / size[0] % size[1];
  index[2] = cluster.index[2] * size[2] + rank / size[0] / size[1];
  block = index[0] +
          launch.grid[0] * (index[1] + uint64_t(launch.grid[1]) * index[2]);
  size_t perWarp = registerBytesOfWarp(program);
  for (size_t i = 0; i < warps.size(); ++i) {
    Warp &w = warps[i];
    w.cta = this;
    w.id = static_cast<uint32_t>(i);
    w.registers = registers + i * perWarp;
    w.constants = program.constants.data();
    unsigned lanes = std::min(warpSize, threads - w.id * warpSize);
    w.live = lanes == warpSize ? allLanes : (uint32_t(1) << lanes) - 1;
    w.groups.resize(1);
    w.groups[0].mask = w.live;
    w.local.resize(size_t(program.localBytes) * warpSize);
    if (program.usesWgmma) {
      w.inFlight.resize(program.registerBytes / 128 + 1);
      w.touched.resize(program.registerBytes / 128 + 1);
    }
    setSpecials(*this, w);
  }
}

//===--- running ------------------------------------------------------------//

/// Whether all lanes that have to be here are.
bool Cta::mayRun(Warp &w, const Instruction &inst) {
  uint32_t need = w.live;
  if (inst.converge == Converge::Members) {
    unsigned lane = unsigned(__builtin_ctz(w.mask));
    uint32_t members = lane32(w, inst.ops[inst.count - 1], lane);
    need &= members;
    if (w.mask & ~members) {
      w.fail(lane, "a lane that is not in the member mask");
      return false;
    }
  }
  if ((need & ~w.mask) == 0)
    return true;
  w.group().wait = Wait::Converge;
  w.group().need = need;
  w.group().pc = w.pc;
  return false;
}

/// One instruction. False: the current group cannot go on.
bool Cta::step(Warp &w) {
  const Instruction &inst = program.code[static_cast<size_t>(w.pc)];
  uint32_t mask = w.mask;
  if (inst.guard >= 0) {
    uint32_t p;
    std::memcpy(&p, w.registers + inst.guard, sizeof p);
    mask &= inst.guardNegated ? ~p : p;
  }
  if (inst.converge != Converge::None && mask) {
    if (!mayRun(w, inst))
      return false;
    if (mask != w.mask && inst.converge == Converge::Warp)
      w.fail(unsigned(__builtin_ctz(mask)),
             "an aligned instruction that only some lanes execute");
  }
  w.nextPc = w.pc + 1;
  if (mask && (!w.anyInFlight || checkInFlight(w, inst)) && !cluster.failed)
    inst.run(w, inst, mask);
  if (inst.touchesProduct && mask)
    noteTouched(w, inst);
  ++w.executed;
  w.threads += unsigned(__builtin_popcount(w.mask));
  if (w.stall) {
    w.stall = false;
    w.group().pc = w.pc;
    return false;
  }
  if (w.regroup) {
    regroup(w);
    return false;
  }
  w.pc = w.nextPc;
  return true;
}

static void trace(const Cta &cta, const Warp &w) {
  size_t at = static_cast<size_t>(w.pc);
  std::fprintf(stderr, "[%08x] %5d  %s\n", w.mask, cta.program.code[at].line,
               cta.program.text[at].c_str());
}

/// Runs up to `budget` instructions; false: none could.
bool Cta::runWarp(Warp &w, uint64_t budget) {
  if (w.groups.empty() || !pick(w))
    return false;
  if (w.groups.size() > 1)
    settle(w);
  bool traced =
      options.traceBlock == int64_t(block) && options.traceWarp == int(w.id);
  for (uint64_t i = 0; i < budget && !cluster.failed; ++i) {
    if (traced)
      trace(*this, w);
    if (step(w)) {
      if (w.groups.size() > 1)
        settle(w);
      else if (w.group().yielded)
        break;
      continue;
    }
    if (w.groups.empty() || !pick(w))
      return true;
    if (w.groups.size() > 1)
      settle(w);
  }
  w.group().pc = w.pc;
  if (w.groups.size() == 1)
    w.group().yielded = false;
  return true;
}

unsigned Cta::liveThreads() const {
  unsigned n = 0;
  for (const Warp &w : warps)
    n += w.live ? warpSize : 0;
  return n;
}

/// Opens the barrier if everybody is there.
void Cta::checkBarrier(unsigned number) {
  BarrierState &b = barriers[number];
  uint32_t need = b.expected ? b.expected : liveThreads();
  if (b.arrived == 0 || b.arrived < need)
    return;
  b.arrived = 0;
  ++b.generation;
  ++cluster.effects;
}

void Cta::changeRegisters(Warp &w, unsigned lane, uint32_t count, bool) {
  w.registerCount = count;
  uint64_t sum = 0;
  for (const Warp &other : warps)
    sum += other.registerCount * warpSize;
  if (sum > 65536)
    w.fail(lane, "setmaxnreg asks for " + std::to_string(sum) +
                     " registers in all, but an SM has 65536");
}

std::string Cta::waitReport(const Group &g) const {
  if (g.wait == Wait::Barrier) {
    const BarrierState &b = barriers[g.object];
    return "waits at barrier " + std::to_string(g.object) + " with " +
           std::to_string(b.arrived) + " of " +
           std::to_string(b.expected ? b.expected : liveThreads()) +
           " threads there";
  }
  if (g.wait == Wait::Mbarrier && mbarriers.count(g.object)) {
    const Mbarrier &b = mbarriers.at(g.object);
    return "waits at the mbarrier at shared address " +
           std::to_string(g.object) + ", phase " + std::to_string(b.phase) +
           ", with " + std::to_string(b.pending) + " of " +
           std::to_string(b.expected) + " arrivals and " +
           std::to_string(b.transactions) + " bytes missing";
  }
  if (g.wait == Wait::Cluster)
    return "waits at the cluster barrier with " + cluster.arrivedReport() +
           " threads there";
  return g.wait == Wait::Converge ? "waits for other lanes of its warp"
                                  : "runs";
}

std::string Cta::blockedReport() const {
  std::string text;
  for (const Warp &w : warps)
    for (const Group &g : w.groups) {
      char mask[16];
      std::snprintf(mask, sizeof mask, "%08x", g.mask);
      text += "\n  ";
      if (cluster.ctas.size() > 1)
        text += "block " + std::to_string(block) + " ";
      text += "warp " + std::to_string(w.id) + " lanes " + mask +
              ", PTX line " + std::to_string(program.code[size_t(g.pc)].line) +
              ", " + waitReport(g) + ": " + program.text[size_t(g.pc)];
    }
  return text;
}

/// The four warps of a warpgroup must have issued the same wgmmas.
bool Cta::checkWarpgroups() {
  for (size_t i = 0; i + 4 <= warps.size(); i += 4)
    for (size_t k = 1; k < 4; ++k)
      if (warps[i].wgmmaHash != warps[i + k].wgmmaHash) {
        cluster.error = program.name + ": warps " + std::to_string(i) +
                        " and " + std::to_string(i + k) +
                        " of a warpgroup issued different wgmmas (" +
                        std::to_string(warps[i].wgmmaCount) + " and " +
                        std::to_string(warps[i + k].wgmmaCount) + " in all)";
        return false;
      }
  return true;
}

} // namespace kdac::ptx
