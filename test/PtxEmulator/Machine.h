// Promises: the state of a running cluster of CTAs, and what handlers do to it.
// Does not: decode.
#ifndef KDAC_PTXEMULATOR_MACHINE_H
#define KDAC_PTXEMULATOR_MACHINE_H

#include "Program.h"

#include <cstring>
#include <deque>
#include <random>

namespace kdac::ptx {

struct Cta;
struct Cluster;

/// Why a group of lanes does not run.
enum class Wait : uint8_t { None, Barrier, Mbarrier, Converge, Cluster };

/// Lanes of a warp at the same place.
struct Group {
  uint32_t mask = 0;
  int32_t pc = 0;
  Wait wait = Wait::None;
  bool yielded = false;    ///< others of the warp go first
  uint32_t generation = 0; ///< of the barrier waited for; parity
  uint32_t object = 0;     ///< number of the barrier; address of the mbarrier
  uint32_t need = 0;       ///< lanes to converge with
  uint32_t streak = 0;     ///< instructions since it let others run
};

/// A copy or product that has been started.
struct AsyncOp {
  enum Kind : uint8_t {
    CpAsync,
    ArriveNoInc,
    BulkLoad,
    BulkStore,
    BulkCopy, ///< into a block of the cluster
    Wgmma,
    Move
  };
  Kind kind = CpAsync;
  uint32_t lane = 0;
  uint32_t group = 0; ///< commit group
  uint32_t shared = 0, mbarrier = 0, bytes = 0, sourceBytes = 0;
  uint64_t global = 0; ///< of BulkCopy: the source, in shared memory
  int32_t pc = 0;
  uint64_t descA = 0, descB = 0;
  bool scaleD = false;
};

/// First in, first out; unlike std::deque it owns nothing while empty.
class Queue {
public:
  bool empty() const { return first == ops.size(); }
  void push_back(const AsyncOp &op) { ops.push_back(op); }
  const AsyncOp &front() const { return ops[first]; }
  AsyncOp take() {
    AsyncOp op = ops[first++];
    if (empty()) {
      ops.clear();
      first = 0;
    }
    return op;
  }

private:
  std::vector<AsyncOp> ops;
  size_t first = 0;
};

struct Warp {
  Cta *cta = nullptr;
  uint8_t *registers = nullptr;
  const uint8_t *constants = nullptr;
  uint32_t id = 0;
  uint32_t live = 0; ///< lanes that have not exited
  std::vector<Group> groups;
  size_t current = 0; ///< in groups
  int32_t pc = 0;     ///< of the instruction that runs
  int32_t nextPc = 0;
  uint32_t mask = 0;    ///< lanes of the current group
  bool stall = false;   ///< the instruction did not run; `groups` says why
  bool regroup = false; ///< groups changed
  uint64_t executed = 0, threads = 0;
  uint32_t registerCount = 0;   ///< as setmaxnreg said
  uint64_t gaveUp = UINT64_MAX; ///< the cluster's effects at a failed try_wait
  std::vector<uint8_t> local;
  // asynchronous work
  Queue copies[warpSize];            ///< cp.async of a lane
  uint32_t copyGroup[warpSize] = {}; ///< commit group that is open
  Queue bulk[warpSize];              ///< bulk stores of a lane
  uint32_t bulkGroup[warpSize] = {};
  Queue products; ///< wgmma not executed yet
  uint32_t productGroup = 0;
  uint32_t doneGroup = 0; ///< every group before it has been waited for
  /// Of every 128 bytes of registers: 1 an accumulator, 2 an A operand of a
  /// product that has not been waited for; which group.
  struct InFlight {
    uint8_t what = 0;
    uint32_t group = 0;
  };
  std::vector<InFlight> inFlight;
  bool anyInFlight = false;
  uint64_t wgmmaCount = 0, wgmmaHash = 0;
  uint32_t fences = 0; ///< wgmma.fence executed
  /// Of every 128 bytes of registers: the fences when ordinary instructions
  /// touched and wrote it last.
  struct Touched {
    uint32_t any = 0xffffffff, written = 0xffffffff;
  };
  std::vector<Touched> touched;
  /// Of every 16 bytes of shared memory: 1 + the last group whose product reads
  /// it; empty: none does.
  std::vector<uint32_t> lastRead;
  /// fence.proxy.async executed: those that order what was written to shared
  /// memory of the warp's own block, and of the others.
  uint32_t proxyEpoch[warpSize] = {}, remoteProxyEpoch[warpSize] = {};
  uint32_t releases[warpSize] = {}; ///< at cluster scope, of mbarrier.init too
  /// Lanes that have arrived at the cluster barrier: that is to open next, and
  /// without having waited since.
  uint32_t clusterArrived = 0, clusterPending = 0;

  Group &group() { return groups[current]; }
  const Instruction &inst() const;
  /// Stops the run; the first report is kept.
  void fail(unsigned lane, const std::string &what);
};

struct BarrierState {
  uint32_t generation = 0, arrived = 0, expected = 0;
};

struct Mbarrier {
  uint32_t expected = 0, pending = 0, phase = 0;
  int64_t transactions = 0;
  // Who initialised it: the lane, its releases by then, and the cluster barrier
  // that tells others of it.
  const Warp *by = nullptr;
  uint32_t lane = 0, releases = 0, barrier = 0;
};

/// Everything one CTA sees.
struct Cta {
  Cta(Cluster &cluster, uint32_t rank, uint8_t *registers);

  Cluster &cluster;
  const Program &program;
  const Memory &memory;
  const Memory *globals;
  const Launch &launch;
  const Options &options;
  uint32_t rank; ///< in the cluster
  unsigned index[3];
  uint64_t block;
  unsigned threads;
  std::vector<uint8_t> shared; ///< from sharedBase
  std::vector<uint8_t> valid;  ///< 0xff where shared memory has been written
  /// Of each 4 bytes of shared memory: the thread of the cluster that wrote
  /// them by ordinary stores and its fence count then, where proxies are looked
  /// at.
  struct Writer {
    uint16_t thread = 0xffff;
    uint16_t epoch = 0;
  };
  std::vector<Writer> writers, lastReaders; ///< readers: of what is written
  /// Of every 16 bytes of shared memory: the warps whose products read it.
  std::vector<uint32_t> readers;
  /// Of every 16 bytes of shared memory: copies within the cluster that have
  /// not finished and read or write it; empty: there never was one.
  struct Copies {
    uint16_t from = 0, into = 0;
  };
  std::vector<Copies> copies;
  Memory::Block lastBlock; ///< of global memory
  std::vector<Warp> warps;
  unsigned running = 0; ///< warps with live lanes
  BarrierState barriers[16];
  std::map<uint32_t, Mbarrier> mbarriers;
  uint32_t clusterPassed = 0; ///< cluster barriers that some thread waited for

  bool runWarp(Warp &warp, uint64_t budget);
  bool pick(Warp &warp);
  bool ready(Warp &warp, Group &group);
  void settle(Warp &warp);
  void regroup(Warp &warp);
  bool mayRun(Warp &warp, const Instruction &inst);
  bool step(Warp &warp);
  std::string blockedReport() const;
  std::string waitReport(const Group &group) const;
  std::string where(const Warp &warp, int32_t pc, unsigned lane) const;
  unsigned liveThreads() const;
  void checkBarrier(unsigned number);
  void changeRegisters(Warp &warp, unsigned lane, uint32_t count, bool up);
  bool checkWarpgroups();
};

/// CTAs that run together and reach each other's shared memory; one CTA where a
/// launch has no clusters.
struct Cluster {
  /// The `number`th of a grid. `registers` holds the warps' registers, and can
  /// be used again.
  Cluster(const Program &program, const Memory &memory, const Memory *globals,
          const Launch &launch, const Options &options, uint64_t number,
          std::vector<uint8_t> &registers);

  /// Runs to the end; false: `error` says why not.
  bool run();
  /// "block 3", or "cluster 1 (blocks 2, 3)", for reports.
  std::string name() const;
  /// "32 of 64", at the cluster barrier.
  std::string arrivedReport() const;
  bool runRound(std::vector<Warp *> &order, bool &alive, uint64_t &executed);
  bool finishSomething();
  /// Opens the cluster barrier if everybody who has not exited is there.
  void checkBarrier();

  const Program &program;
  const Memory &memory;
  const Memory *globals;
  const Launch &launch;
  const Options &options;
  uint64_t number;
  unsigned size[3];                            ///< in CTAs
  unsigned index[3];                           ///< in clusters
  std::vector<std::unique_ptr<Cta>> ctas;      ///< by rank
  uint32_t opened = 0;                         ///< cluster barriers
  std::deque<std::pair<Warp *, AsyncOp>> bulk; ///< not finished; no stores
  std::string error;
  bool failed = false;
  uint64_t effects = 0; ///< grows with everything others could wait for
  std::mt19937_64 random;
  int ahead = -1; ///< the rank that runs more than the others; -1: none does
  Stats stats;
};

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

template <typename To, typename From> To bitsAs(From from) {
  static_assert(sizeof(To) <= sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

/// A value of T in a register, and back; narrow integers are zero-extended.
template <typename T> Slot<T> toSlot(T value) {
  Slot<T> slot = 0;
  std::memcpy(&slot, &value, sizeof value);
  return slot;
}

inline uint8_t *place(Warp &w, Ref r) { return w.registers + r.offset; }
inline const uint8_t *read(const Warp &w, Ref r) {
  return (r.constant ? w.constants : w.registers) + r.offset;
}
template <typename T> const Slot<T> *source(const Warp &w, Ref r) {
  return reinterpret_cast<const Slot<T> *>(read(w, r));
}
template <typename T> Slot<T> *target(Warp &w, Ref r) {
  return reinterpret_cast<Slot<T> *>(place(w, r));
}
inline uint32_t &predicate(Warp &w, Ref r) {
  return *reinterpret_cast<uint32_t *>(place(w, r));
}
inline uint32_t predicateOf(const Warp &w, Ref r) {
  return *reinterpret_cast<const uint32_t *>(read(w, r));
}
inline void setPredicate(Warp &w, Ref r, uint32_t mask, uint32_t bits) {
  if (r.bits)
    predicate(w, r) = (predicate(w, r) & ~mask) | (bits & mask);
}

/// Whatever the width of the register.
inline uint64_t lane64(const Warp &w, Ref r, unsigned lane) {
  return r.bits == 64 ? source<uint64_t>(w, r)[lane]
                      : source<uint32_t>(w, r)[lane];
}
inline uint32_t lane32(const Warp &w, Ref r, unsigned lane) {
  return static_cast<uint32_t>(lane64(w, r, lane));
}
inline void setLane(Warp &w, Ref r, unsigned lane, uint64_t value) {
  if (r.bits == 64)
    target<uint64_t>(w, r)[lane] = value;
  else if (r.bits == 16)
    target<uint32_t>(w, r)[lane] = static_cast<uint16_t>(value);
  else if (r.bits)
    target<uint32_t>(w, r)[lane] = static_cast<uint32_t>(value);
}

/// f(lane) for every lane of the mask; whole warps in a loop that vectorises.
template <typename F> void eachLane(uint32_t mask, F f) {
  if (mask == allLanes) {
    for (unsigned lane = 0; lane < warpSize; ++lane)
      f(lane);
    return;
  }
  for (; mask; mask &= mask - 1)
    f(static_cast<unsigned>(__builtin_ctz(mask)));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The lowest lane of a mask.
inline unsigned firstOf(uint32_t mask) {
  return static_cast<unsigned>(__builtin_ctz(mask));
}

/// mapa's addresses: (rank + 1) times this, plus the address in that block. One
/// without it is the block's own.
constexpr uint32_t clusterStride = 1 << 24;
/// The CTA that a shared::cluster address lies in, and from there on the
/// address in that CTA; null after a report: there is none, or it may not have
/// begun, or it has exited.
Cta *sharedOwner(Warp &w, unsigned lane, uint32_t &address);

/// The address of shared memory that operand k names, generic or not.
inline uint32_t sharedAddress(const Warp &w, const Instruction &i, unsigned k,
                              unsigned lane, int64_t offset) {
  return uint32_t(lane64(w, i.ops[k], lane) + uint64_t(offset));
}

/// What memory is wanted for. Peek: what nobody wrote is read as 0xff, no
/// fault.
enum class Access : uint8_t { Read, Peek, Write };

/// Host address of [address, address + bytes), or null after a report.
uint8_t *access(Warp &w, unsigned lane, Space space, uint64_t address,
                unsigned bytes, Access how);
/// The same of shared memory of any block of the cluster, by either proxy.
uint8_t *accessShared(Warp &w, unsigned lane, uint32_t address, unsigned bytes,
                      Access how, bool async);
uint8_t *accessGlobal(Warp &w, unsigned lane, uint64_t address, unsigned bytes);
inline uint64_t addressOf(const Warp &w, const Instruction &i, Ref base,
                          unsigned lane) {
  return lane64(w, base, lane) + static_cast<uint64_t>(i.offset);
}

/// Started work that is finished now.
void execute(Warp &w, const AsyncOp &op);
void executeWgmma(Warp &w, const AsyncOp &op);
/// A product begins on registers, accumulators first, that wgmma.fence ordered
/// after all else; false after a report.
bool startProduct(Warp &w, const Instruction &inst, unsigned accumulators,
                  unsigned aRegisters);
/// It reads 16 bytes of shared memory.
void markRead(Warp &w, uint32_t address);
/// An ordinary instruction used registers that are some product's.
void noteTouched(Warp &w, const Instruction &inst);
/// False, after a report: the instruction touches registers of a product that
/// has not been waited for.
bool checkInFlight(Warp &w, const Instruction &inst);
/// The same of a write to the shared memory of `cta` that one reads, from its
/// start.
bool checkReaders(Warp &w, Cta &cta, unsigned lane, uint32_t at,
                  unsigned bytes);
/// A copy within the cluster begins (1) or ends (-1).
bool markCopy(Warp &w, const AsyncOp &op, int change);
/// False, after a report: one that has not finished reads what is written, or
/// writes what is touched.
bool checkCopies(Warp &w, Cta &cta, unsigned lane, uint32_t at, unsigned bytes,
                 Access how);
/// barrier.cluster
void arriveAtCluster(Warp &w, uint32_t mask, bool releases);
void waitForCluster(Warp &w, uint32_t mask);
/// The mbarrier at a shared::cluster address, or null after a report: there is
/// none, or nothing orders its initialisation before this use.
Mbarrier *findMbarrier(Warp &w, unsigned lane, uint32_t address);
/// Arrivals and transactions; false after a report.
bool arrive(Warp &w, unsigned lane, uint32_t address, uint32_t count,
            int64_t transactions);

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_MACHINE_H
