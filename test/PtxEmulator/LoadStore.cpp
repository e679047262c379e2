// Loads, stores, atomics, and addresses of spaces.
#include "Lanes.h"
#include "Numbers.h"

#include <mutex>

namespace kdac::ptx {

namespace {

/// ops: registers, then the base.
template <typename T, bool isSigned>
void load(Warp &w, const Instruction &i, uint32_t mask) {
  Ref base = i.ops[i.vector];
  for (; mask; mask &= mask - 1) {
    unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
    const uint8_t *from =
        access(w, lane, i.space, addressOf(w, i, base, lane),
               sizeof(T) * i.vector, i.peeks ? Access::Peek : Access::Read);
    if (!from)
      return;
    for (unsigned k = 0; k < i.vector; ++k) {
      T x;
      std::memcpy(&x, from + k * sizeof x, sizeof x);
      if constexpr (isSigned)
        setLane(w, i.ops[k], lane, uint64_t(int64_t(std::make_signed_t<T>(x))));
      else
        setLane(w, i.ops[k], lane, x);
    }
  }
}

/// ops: the base, then registers.
template <typename T> void store(Warp &w, const Instruction &i, uint32_t mask) {
  ++w.cta->cluster.effects;
  for (; mask; mask &= mask - 1) {
    unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
    uint8_t *to = access(w, lane, i.space, addressOf(w, i, i.ops[0], lane),
                         sizeof(T) * i.vector, Access::Write);
    if (!to)
      return;
    for (unsigned k = 0; k < i.vector; ++k) {
      T x = static_cast<T>(lane64(w, i.ops[k + 1], lane));
      std::memcpy(to + k * sizeof x, &x, sizeof x);
    }
  }
}

Handler loadHandler(Type t) {
  bool s = isSignedType(t);
  switch (bitsOf(t)) {
  case 8:
    return s ? load<uint8_t, true> : load<uint8_t, false>;
  case 16:
    return s ? load<uint16_t, true> : load<uint16_t, false>;
  case 32:
    return s ? load<uint32_t, true> : load<uint32_t, false>;
  case 64:
    return load<uint64_t, false>;
  default:
    return nullptr;
  }
}
Handler storeHandler(Type t) {
  switch (bitsOf(t)) {
  case 8:
    return store<uint8_t>;
  case 16:
    return store<uint16_t>;
  case 32:
    return store<uint32_t>;
  case 64:
    return store<uint64_t>;
  default:
    return nullptr;
  }
}

/// Hints and memory orders: this machine is sequentially consistent.
void dropHints(Decoder &d) {
  d.drop({"weak",
          "relaxed",
          "acquire",
          "release",
          "acq_rel",
          "volatile",
          "mmio",
          "cta",
          "cluster",
          "gpu",
          "sys",
          "ca",
          "cg",
          "cs",
          "cv",
          "lu",
          "wb",
          "wt",
          "nc",
          "L1::evict_normal",
          "L1::evict_unchanged",
          "L1::evict_first",
          "L1::evict_last",
          "L1::no_allocate",
          "L2::evict_normal",
          "L2::evict_first",
          "L2::evict_last",
          "L2::64B",
          "L2::128B",
          "L2::256B",
          "noftz"});
}

/// The number of elements, from .v2, .v4 or .v8.
bool takeVector(Decoder &d, const Operand &op) {
  d.inst.vector = d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1;
  size_t registers = op.kind == Operand::List ? op.parts.size() : 1;
  return registers == d.inst.vector;
}
bool values(Decoder &d, const Operand &op, Type t, bool isDestination) {
  if (op.kind == Operand::List)
    return d.list(op, t, isDestination, false);
  return isDestination ? d.destination(op, t, false) : d.value(op, t, false);
}

bool decodeLoad(Decoder &d) {
  Type t = d.takeType();
  d.setSpace();
  dropHints(d);
  bool hinted = d.take("L2::cache_hint");
  const auto &ops = d.statement().operands;
  d.inst.run = loadHandler(t);
  d.inst.isLoad = true;
  return d.arity(2, hinted ? 3 : 2) && takeVector(d, ops[0]) && d.inst.run &&
         values(d, ops[0], t, true) && d.address(ops[1]) && d.done();
}
bool decodeStore(Decoder &d) {
  Type t = d.takeType();
  d.setSpace();
  dropHints(d);
  bool hinted = d.take("L2::cache_hint");
  const auto &ops = d.statement().operands;
  d.inst.run = storeHandler(t);
  return d.inst.space != Space::Param && d.arity(2, hinted ? 3 : 2) &&
         takeVector(d, ops[1]) && d.inst.run && d.address(ops[0]) &&
         values(d, ops[1], t, false) && d.done();
}

//===--- atomics ------------------------------------------------------------//

enum Atomic : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };
constexpr const char *atomicNames[] = {"add", "min",  "max", "and", "or",
                                       "xor", "exch", "cas", "inc", "dec"};

template <typename T> T combine(Atomic op, T old, T b, T c) {
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
    case And:
      return old & b;
    case Or:
      return old | b;
    case Xor:
      return old ^ b;
    case Cas:
      return old == b ? c : old;
    case Inc:
      return old >= b ? T(0) : T(old + 1);
    case Dec:
      return old == 0 || old > b ? b : T(old - 1);
    default:
      break;
    }
  }
  switch (op) {
  case Add:
    return T(old + b);
  case Min:
    return old < b ? old : b;
  case Max:
    return old < b ? b : old;
  default:
    return b;
  }
}

std::mutex atomicMutex;

/// ops: old value (none for red), base, b, c. kind: the operation.
template <typename T>
void atomic(Warp &w, const Instruction &i, uint32_t mask) {
  ++w.cta->cluster.effects;
  std::lock_guard<std::mutex> lock(atomicMutex);
  for (; mask; mask &= mask - 1) {
    unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
    uint64_t address = addressOf(w, i, i.ops[1], lane);
    if (!access(w, lane, i.space, address, sizeof(T), Access::Read))
      return;
    uint8_t *at = access(w, lane, i.space, address, sizeof(T), Access::Write);
    T old;
    std::memcpy(&old, at, sizeof old);
    T b = bitsAs<T>(Slot<T>(lane64(w, i.ops[2], lane)));
    T c = i.kind == Cas ? bitsAs<T>(Slot<T>(lane64(w, i.ops[3], lane))) : T();
    T now = combine(Atomic(i.kind), old, b, c);
    std::memcpy(at, &now, sizeof now);
    setLane(w, i.ops[0], lane, toSlot<T>(old));
  }
}

Handler atomicHandler(Type t) {
  switch (t) {
  case Type::B32:
  case Type::U32:
    return atomic<uint32_t>;
  case Type::S32:
    return atomic<int32_t>;
  case Type::B64:
  case Type::U64:
    return atomic<uint64_t>;
  case Type::S64:
    return atomic<int64_t>;
  case Type::F32:
    return atomic<float>;
  case Type::F64:
    return atomic<double>;
  default:
    return nullptr;
  }
}

bool decodeAtomic(Decoder &d, bool returns) {
  Type t = d.takeType();
  d.setSpace();
  d.inst.kind = 255;
  for (uint8_t k = 0; k < 10; ++k)
    if (d.take(atomicNames[k]))
      d.inst.kind = k;
  dropHints(d);
  const auto &ops = d.statement().operands;
  size_t first = returns ? 1 : 0, n = first + 2 + (d.inst.kind == Cas);
  d.inst.run = atomicHandler(t);
  if (d.inst.kind == 255 || !d.inst.run || !d.arity(n))
    return false;
  if (!returns)
    d.push(Ref());
  else if (!d.destination(ops[0], t))
    return false;
  for (size_t k = first; k < n; ++k)
    if (!(k == first ? d.address(ops[k]) : d.value(ops[k], t)))
      return false;
  return d.done();
}
bool decodeAtom(Decoder &d) { return decodeAtomic(d, true); }
bool decodeRed(Decoder &d) {
  // redux is another opcode; red.async is not supported.
  return decodeAtomic(d, false);
}

//===--- address spaces -----------------------------------------------------//

/// kind: 1 from generic (.to), 0 to generic.
void cvtaRun(Warp &w, const Instruction &i, uint32_t mask) {
  uint64_t window = static_cast<uint64_t>(i.offset);
  eachLane(mask, [&](unsigned lane) {
    uint64_t x = lane64(w, i.ops[1], lane);
    setLane(w, i.ops[0], lane, i.kind ? x - window : x + window);
  });
}
int64_t windowOf(Space space) {
  return space == Space::Shared || space == Space::Cluster
             ? int64_t(sharedWindow)
         : space == Space::Local ? int64_t(localWindow)
         : space == Space::Param ? int64_t(paramWindow)
                                 : 0;
}
bool decodeCvta(Decoder &d) {
  Type t = d.takeType();
  d.inst.kind = d.take("to");
  d.setSpace();
  d.inst.offset = windowOf(d.inst.space);
  d.inst.run = cvtaRun;
  const auto &ops = d.statement().operands;
  // Generic addresses of shared memory need 64 bits.
  return bitsOf(t) == 64 && d.arity(2) && d.destination(ops[0], t) &&
         d.value(ops[1], t) && d.done();
}
void isspacepRun(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t result = 0;
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = lane64(w, i.ops[1], lane);
    bool inside = address >> 56 << 56 == uint64_t(i.offset);
    if (i.space == Space::Shared)
      inside &= uint32_t(address) < clusterStride;
    result |= uint32_t(inside) << lane;
  });
  setPredicate(w, i.ops[0], mask, result);
}
bool decodeIsspacep(Decoder &d) {
  d.setSpace();
  d.inst.offset = windowOf(d.inst.space);
  d.inst.run = isspacepRun;
  const auto &ops = d.statement().operands;
  return d.arity(2) && d.predicate(ops[0]) && d.value(ops[1], Type::B64) &&
         d.done();
}

/// ops: to, from, rank.
void mapaRun(Warp &w, const Instruction &i, uint32_t mask) {
  size_t blocks = w.cta->cluster.ctas.size();
  eachLane(mask, [&](unsigned lane) {
    uint64_t address = lane64(w, i.ops[1], lane);
    uint32_t rank = lane32(w, i.ops[2], lane);
    uint64_t window = i.space == Space::Generic ? sharedWindow : 0;
    if (rank >= blocks)
      return w.fail(lane, "mapa of rank " + std::to_string(rank) +
                              " in a cluster of " + std::to_string(blocks));
    if (address - window >= clusterStride)
      return w.fail(lane, "mapa of an address outside of the block's own "
                          "shared memory");
    setLane(w, i.ops[0], lane, address + uint64_t(rank + 1) * clusterStride);
  });
}
bool decodeMapa(Decoder &d) {
  Type t = d.takeType();
  d.setSpace();
  d.inst.run = mapaRun;
  const auto &ops = d.statement().operands;
  bool fits = d.inst.space == Space::Cluster ||
              (d.inst.space == Space::Generic && t == Type::U64);
  return fits && d.arity(3) && d.destination(ops[0], t) && d.value(ops[1], t) &&
         d.value(ops[2], Type::U32) && d.done();
}

} // namespace

const std::vector<Opcode> &memoryOpcodes() {
  static const std::vector<Opcode> table = {
      {"ld", decodeLoad},   {"st", decodeStore},  {"atom", decodeAtom},
      {"red", decodeRed},   {"cvta", decodeCvta}, {"isspacep", decodeIsspacep},
      {"mapa", decodeMapa},
  };
  return table;
}

} // namespace kdac::ptx
