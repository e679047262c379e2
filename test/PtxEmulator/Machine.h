// Promises: the state of a running CTA, and what handlers do to it.
// Does not: decode.
#ifndef KDAC_PTXEMULATOR_MACHINE_H
#define KDAC_PTXEMULATOR_MACHINE_H

#include "Program.h"

#include <cstring>
#include <deque>
#include <random>

namespace kdac::ptx {

struct Cta;

/// Why a group of lanes does not run.
enum class Wait : uint8_t { None, Barrier, Mbarrier, Converge };

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
    Wgmma,
    Move
  };
  Kind kind = CpAsync;
  uint32_t lane = 0;
  uint32_t group = 0; ///< commit group
  uint32_t shared = 0, mbarrier = 0, bytes = 0, sourceBytes = 0;
  uint64_t global = 0;
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
  uint32_t registerCount = 0; ///< as setmaxnreg said
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
  uint32_t proxyEpoch[warpSize] = {}; ///< fence.proxy.async executed

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
};

/// Everything one CTA sees.
struct Cta {
  /// `registers` holds the warps' registers, and can be used again.
  Cta(const Program &program, const Memory &memory, const Memory *globals,
      const Launch &launch, const Options &options, uint64_t block,
      std::vector<uint8_t> &registers);

  /// Runs to the end; false: `error` says why not.
  bool run();

  const Program &program;
  const Memory &memory;
  const Memory *globals;
  const Launch &launch;
  const Options &options;
  unsigned index[3];
  uint64_t block;
  unsigned threads;
  std::vector<uint8_t> shared; ///< from sharedBase
  std::vector<uint8_t> valid;  ///< 0xff where shared memory has been written
  /// Of each 4 bytes of shared memory: the thread that wrote them by ordinary
  /// stores and its fence count then, where proxies are looked at.
  struct Writer {
    uint16_t thread = 0xffff;
    uint16_t epoch = 0;
  };
  std::vector<Writer> writers;
  /// Of every 16 bytes of shared memory: the warps whose products read it.
  std::vector<uint32_t> readers;
  Memory::Block lastBlock; ///< of global memory
  std::vector<Warp> warps;
  BarrierState barriers[16];
  std::map<uint32_t, Mbarrier> mbarriers;
  std::deque<std::pair<Warp *, AsyncOp>> bulkLoads; ///< not finished
  std::string error;
  bool failed = false;
  uint64_t effects = 0; ///< grows with everything others could wait for
  std::mt19937_64 random;
  Stats stats;

  bool runWarp(Warp &warp, uint64_t budget);
  bool pick(Warp &warp);
  bool ready(Warp &warp, Group &group);
  void settle(Warp &warp);
  void regroup(Warp &warp);
  bool mayRun(Warp &warp, const Instruction &inst);
  bool step(Warp &warp);
  std::string blockedReport() const;
  std::string where(const Warp &warp, int32_t pc, unsigned lane) const;
  unsigned liveThreads() const;
  void checkBarrier(unsigned number);
  void changeRegisters(Warp &warp, unsigned lane, uint32_t count, bool up);
  bool finishSomething();
  bool checkWarpgroups();
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
/// The same of shared memory, by the asynchronous proxy.
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
/// The same of a write to the shared memory that one reads, from its start.
bool checkReaders(Warp &w, unsigned lane, uint32_t at, unsigned bytes);
/// Arrivals and transactions; false after a report.
bool arrive(Warp &w, unsigned lane, uint32_t address, uint32_t count,
            int64_t transactions);

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_MACHINE_H
