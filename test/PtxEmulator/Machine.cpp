// The scheduler: warps in turn or at random.
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
  if (!cta->failed)
    cta->error =
        cta->program.name + ": " + what + "\n  " + cta->where(*this, pc, lane);
  cta->failed = true;
}

//===--- setting up ---------------------------------------------------------//

static void setSpecial(uint8_t *registers, Special which, unsigned lane,
                       uint32_t value) {
  std::memcpy(registers + (which * warpSize + lane) * 4, &value, 4);
}

static void setSpecials(const Cta &cta, const Warp &w) {
  const unsigned *n = cta.launch.block, *grid = cta.launch.grid;
  uint32_t warps = static_cast<uint32_t>(cta.warps.size());
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
                                           uint32_t(cta.block % 132),
                                           132,
                                           cta.launch.dynamicShared,
                                           1,
                                           0,
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

Cta::Cta(const Program &program, const Memory &memory, const Memory *globals,
         const Launch &launch, const Options &options, uint64_t block,
         std::vector<uint8_t> &registers)
    : program(program), memory(memory), globals(globals), launch(launch),
      options(options), block(block),
      threads(launch.block[0] * launch.block[1] * launch.block[2]),
      shared(program.staticShared + launch.dynamicShared, 0xff),
      valid(shared.size()), writers(shared.size() / 4 + 1),
      warps((threads + warpSize - 1) / warpSize),
      random(options.seed * 1000003 + block) {
  if (program.usesWgmma)
    readers.resize(shared.size() / 16 + 1);
  index[0] = unsigned(block % launch.grid[0]);
  index[1] = unsigned(block / launch.grid[0] % launch.grid[1]);
  index[2] = unsigned(block / launch.grid[0] / launch.grid[1]);
  size_t perWarp = program.registerBytes / 128 * 128 + 256;
  registers.resize(perWarp * warps.size());
  for (size_t i = 0; i < warps.size(); ++i) {
    Warp &w = warps[i];
    w.cta = this;
    w.id = static_cast<uint32_t>(i);
    w.registers = registers.data() + i * perWarp;
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
  if (mask && (!w.anyInFlight || checkInFlight(w, inst)) && !failed)
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
  for (uint64_t i = 0; i < budget && !failed; ++i) {
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
  ++effects;
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

/// Completes one of the asynchronous copies that nobody waits for by name.
bool Cta::finishSomething() {
  if (!bulkLoads.empty()) {
    size_t which = options.seed ? random() % bulkLoads.size() : 0;
    auto [warp, op] = bulkLoads[which];
    bulkLoads.erase(bulkLoads.begin() + static_cast<long>(which));
    execute(*warp, op);
    return true;
  }
  bool any = false;
  for (Warp &w : warps)
    for (auto &queue : w.copies)
      while (!queue.empty() && !failed) {
        AsyncOp op = queue.take();
        execute(w, op);
        any = true;
      }
  return any;
}

std::string Cta::blockedReport() const {
  std::string text;
  for (const Warp &w : warps)
    for (const Group &g : w.groups) {
      char mask[16];
      std::snprintf(mask, sizeof mask, "%08x", g.mask);
      text += "\n  warp " + std::to_string(w.id) + " lanes " + mask +
              ", PTX line " + std::to_string(program.code[size_t(g.pc)].line) +
              ", ";
      if (g.wait == Wait::Barrier) {
        const BarrierState &b = barriers[g.object];
        text += "waits at barrier " + std::to_string(g.object) + " with " +
                std::to_string(b.arrived) + " of " +
                std::to_string(b.expected ? b.expected : liveThreads()) +
                " threads there";
      } else if (g.wait == Wait::Mbarrier && mbarriers.count(g.object)) {
        const Mbarrier &b = mbarriers.at(g.object);
        text += "waits at the mbarrier at shared address " +
                std::to_string(g.object) + ", phase " +
                std::to_string(b.phase) + ", with " +
                std::to_string(b.pending) + " of " +
                std::to_string(b.expected) + " arrivals and " +
                std::to_string(b.transactions) + " bytes missing";
      } else if (g.wait == Wait::Converge) {
        text += "waits for other lanes of its warp";
      } else {
        text += "runs";
      }
      text += ": " + program.text[size_t(g.pc)];
    }
  return text;
}

bool Cta::run() {
  std::vector<size_t> order(warps.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  uint64_t seen = effects, since = 0;
  while (!failed) {
    bool alive = false, progress = false;
    if (options.seed)
      std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) {
      Warp &w = warps[i];
      if (w.groups.empty())
        continue;
      alive = true;
      uint64_t before = w.executed;
      progress |= runWarp(w, options.seed ? 1 + random() % 300 : 256);
      since += w.executed - before;
      if (failed)
        return false;
    }
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
            " in block " + std::to_string(block) + blockedReport();
    failed = true;
  }
  for (Warp &w : warps) {
    for (auto &queue : w.bulk)
      while (!queue.empty() && !failed)
        execute(w, queue.take());
    stats.warpInstructions += w.executed;
    stats.threadInstructions += w.threads;
  }
  return !failed && checkWarpgroups();
}

/// The four warps of a warpgroup must have issued the same wgmmas.
bool Cta::checkWarpgroups() {
  for (size_t i = 0; i + 4 <= warps.size(); i += 4)
    for (size_t k = 1; k < 4; ++k)
      if (warps[i].wgmmaHash != warps[i + k].wgmmaHash) {
        error = program.name + ": warps " + std::to_string(i) + " and " +
                std::to_string(i + k) +
                " of a warpgroup issued different wgmmas (" +
                std::to_string(warps[i].wgmmaCount) + " and " +
                std::to_string(warps[i + k].wgmmaCount) + " in all)";
        return false;
      }
  return true;
}

} // namespace kdac::ptx
