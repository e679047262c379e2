// What products that have not been waited for forbid: touching their registers,
// and writing the shared memory they read. And what must be fenced before one.
#include "Machine.h"

namespace kdac::ptx {

namespace {

bool isRegister(Ref r) { return !r.constant && r.bits >= 16; }

void mark(Warp &w, Ref r, uint8_t what) {
  if (isRegister(r))
    w.inFlight[r.offset / 128] = {what, w.productGroup};
}

/// A copy of an accumulator is followed: ptxas removes it.
bool followMove(Warp &w, const Instruction &inst) {
  Warp::InFlight from = w.inFlight[inst.ops[1].offset / 128];
  Warp::InFlight &to = w.inFlight[inst.ops[0].offset / 128];
  if (from.what != 1 || to.what == 1)
    return false;
  to = from;
  if (!w.cta->options.late)
    return true;
  AsyncOp op;
  op.kind = AsyncOp::Move;
  op.pc = w.pc;
  op.group = from.group;
  w.products.push_back(op);
  return true;
}

bool isRegisterMove(const Instruction &inst) {
  return inst.isMove && !inst.ops[1].constant && inst.ops[1].bits == 32;
}

} // namespace

bool startProduct(Warp &w, const Instruction &i, unsigned accumulators,
                  unsigned aRegisters) {
  for (unsigned k = 0; k < accumulators + aRegisters; ++k) {
    Ref r = i.ops[k];
    bool isAccumulator = k < accumulators;
    Warp::Touched t =
        isRegister(r) ? w.touched[r.offset / 128] : Warp::Touched();
    if ((isAccumulator ? t.any : t.written) == w.fences) {
      w.fail(0, isAccumulator ? "wgmma with an accumulator that was touched "
                                "after the last wgmma.fence"
                              : "wgmma with an A register that was written "
                                "after the last wgmma.fence");
      return false;
    }
  }
  for (unsigned k = 0; k < accumulators + aRegisters; ++k)
    mark(w, i.ops[k], k < accumulators ? 1 : 2);
  w.anyInFlight = true;
  return true;
}

void noteTouched(Warp &w, const Instruction &inst) {
  // Copies are removed by ptxas: what happened to one happened to the other.
  if (isRegisterMove(inst)) {
    w.touched[inst.ops[0].offset / 128] = w.touched[inst.ops[1].offset / 128];
    return;
  }
  for (unsigned k = 0; k < inst.count; ++k) {
    if (!isRegister(inst.ops[k]))
      continue;
    Warp::Touched &t = w.touched[inst.ops[k].offset / 128];
    t.any = w.fences;
    if (k < inst.dests)
      t.written = w.fences;
  }
}

bool checkInFlight(Warp &w, const Instruction &inst) {
  if (inst.isProduct)
    return true;
  if (isRegisterMove(inst) && followMove(w, inst))
    return true;
  for (unsigned k = 0; k < inst.count; ++k) {
    Ref r = inst.ops[k];
    if (!isRegister(r))
      continue;
    uint8_t what = w.inFlight[r.offset / 128].what;
    if (what == 1 || (what == 2 && k < inst.dests)) {
      w.fail(0, what == 1
                    ? "touches an accumulator of a wgmma that has not been "
                      "waited for"
                    : "writes an A register of a wgmma that has not been "
                      "waited for");
      return false;
    }
  }
  return true;
}

void markRead(Warp &w, uint32_t address) {
  Cta &cta = *w.cta;
  size_t unit = (address - sharedBase) / 16;
  if (address < sharedBase || unit >= cta.readers.size())
    return; // reading it is an error, said elsewhere
  if (w.lastRead.empty())
    w.lastRead.resize(cta.readers.size());
  cta.readers[unit] |= uint32_t(1) << w.id;
  w.lastRead[unit] = w.productGroup + 1;
}

bool checkReaders(Warp &w, Cta &cta, unsigned lane, uint32_t at,
                  unsigned bytes) {
  for (size_t unit = at / 16; unit <= (at + bytes - 1) / 16; ++unit) {
    for (uint32_t rest = cta.readers[unit]; rest; rest &= rest - 1) {
      const Warp &reader = cta.warps[firstOf(rest)];
      if (reader.lastRead[unit] <= reader.doneGroup)
        continue;
      w.fail(lane, "writes shared memory at " +
                       std::to_string(sharedBase + unit * 16) +
                       " that a wgmma of warp " + std::to_string(reader.id) +
                       " reads, which has not been waited for");
      return false;
    }
    cta.readers[unit] = 0;
  }
  return true;
}

} // namespace kdac::ptx
