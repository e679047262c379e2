// cp.async and bulk copies. They happen when they are issued or,
// with Options::late, as late as what waits for them allows.
#include "Lanes.h"

#include <algorithm>
#include <utility>

namespace kdac::ptx {

namespace {

//===--- cp.async -----------------------------------------------------------//

void copyNow(Warp &w, const AsyncOp &op) {
  uint8_t data[16] = {};
  if (op.sourceBytes) {
    const uint8_t *from = accessGlobal(w, op.lane, op.global, op.bytes);
    if (!from)
      return;
    std::memcpy(data, from, op.sourceBytes);
  }
  uint8_t *to =
      access(w, op.lane, Space::Shared, op.shared, op.bytes, Access::Write);
  if (to)
    std::memcpy(to, data, op.bytes);
}

/// ops: to, from, bytes of the source (may be none). bytes: the size. Offsets
/// of both addresses: offset, target.
void copyAsync(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    unsigned lane = firstOf(mask);
    AsyncOp op;
    op.lane = lane;
    op.pc = w.pc;
    op.group = w.copyGroup[lane];
    op.shared = sharedAddress(w, i, 0, lane, i.offset);
    op.global = lane64(w, i.ops[1], lane) + uint64_t(int64_t(i.target));
    op.bytes = i.bytes;
    op.sourceBytes = i.count > 2 ? lane32(w, i.ops[2], lane) : i.bytes;
    if (op.sourceBytes > op.bytes)
      return w.fail(lane, "cp.async reads more bytes than it writes");
    if (w.cta->options.late)
      w.copies[lane].push_back(op);
    else
      copyNow(w, op);
    if (w.cta->cluster.failed)
      return;
  }
}

void finishCopies(Warp &w, unsigned lane, uint32_t upTo) {
  auto &queue = w.copies[lane];
  while (!queue.empty() && queue.front().group < upTo &&
         !w.cta->cluster.failed) {
    AsyncOp op = queue.take();
    execute(w, op);
  }
}

void commitCopies(Warp &w, const Instruction &, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) { ++w.copyGroup[lane]; });
}
/// offset: groups that may be left; -1: nothing, not even uncommitted ones.
void waitCopies(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t keep = uint32_t(std::max<int64_t>(i.offset, 0));
  eachLane(mask, [&](unsigned lane) {
    uint32_t open = w.copyGroup[lane];
    finishCopies(w, lane,
                 i.offset < 0 ? open + 1 : open - std::min(open, keep));
  });
}
/// ops: the mbarrier. kind 1: noinc.
void arriveAfterCopies(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    unsigned lane = firstOf(mask);
    AsyncOp op;
    op.kind = AsyncOp::ArriveNoInc;
    op.lane = lane;
    op.pc = w.pc;
    op.group = w.copyGroup[lane];
    op.mbarrier = sharedAddress(w, i, 0, lane, i.offset);
    if (!i.kind) { // one more arrival is expected in this phase
      auto it = w.cta->mbarriers.find(op.mbarrier);
      if (it != w.cta->mbarriers.end())
        ++it->second.pending;
    }
    if (w.cta->options.late)
      w.copies[lane].push_back(op);
    else
      execute(w, op);
  }
}

bool decodeBulk(Decoder &d);

bool decodeCopyForm(Decoder &d) {
  const auto &ops = d.statement().operands;
  d.inst.run = copyAsync;
  bool all = d.take("ca");
  d.drop({"cg", "L2::64B", "L2::128B", "L2::256B"});
  bool hinted = d.take("L2::cache_hint");
  int64_t bytes;
  if (!d.take("shared") && !d.take("shared::cta"))
    return false;
  if (!d.take("global") || !d.arity(3, hinted ? 5 : 4) ||
      !d.integer(ops[2], bytes) ||
      !(bytes == 16 || (all && (bytes == 4 || bytes == 8))))
    return false;
  d.inst.bytes = uint8_t(bytes);
  if (!d.address(ops[0]))
    return false;
  // Two addresses, an offset field each.
  int64_t offset = d.inst.offset;
  if (!d.address(ops[1]))
    return false;
  d.inst.target = int32_t(d.inst.offset);
  d.inst.offset = offset;
  return (ops.size() < 4 || hinted || d.value(ops[3], Type::U32)) && d.done();
}

bool decodeCopy(Decoder &d) {
  const auto &ops = d.statement().operands;
  if (!d.take("async"))
    return false;
  if (d.take("bulk"))
    return decodeBulk(d);
  if (d.take("commit_group"))
    return d.inst.run = commitCopies, d.arity(0) && d.done();
  if (d.take("wait_all")) {
    d.inst.run = waitCopies;
    d.inst.offset = -1;
    return d.arity(0) && d.done();
  }
  if (d.take("wait_group")) {
    d.inst.run = waitCopies;
    return d.arity(1) && d.integer(ops[0], d.inst.offset) && d.done();
  }
  if (d.take("mbarrier")) {
    d.inst.run = arriveAfterCopies;
    d.inst.kind = d.take("noinc");
    d.setSpace();
    return d.take("arrive") && d.takeType() == Type::B64 && d.arity(1) &&
           d.address(ops[0]) && d.done();
  }
  return decodeCopyForm(d);
}

//===--- bulk copies --------------------------------------------------------//

bool bulkAligned(Warp &w, const AsyncOp &op) {
  if (op.bytes % 16 == 0 && op.shared % 16 == 0 && op.global % 16 == 0)
    return true;
  w.fail(op.lane, "a bulk copy that is not of whole, aligned 16 bytes");
  return false;
}

/// Data and the mbarrier that is told of it must lie in one block.
bool sameBlock(Warp &w, const AsyncOp &op) {
  uint32_t to = op.shared, mbarrier = op.mbarrier;
  if (sharedOwner(w, op.lane, to) != sharedOwner(w, op.lane, mbarrier))
    w.fail(op.lane, "a bulk copy to another block than its mbarrier's");
  return !w.cta->cluster.failed;
}

/// 16 bytes at a time, from and to where the functions say; false once one of
/// them has failed.
template <typename From, typename To>
bool copyPieces(const AsyncOp &op, From from, To to) {
  for (uint32_t at = 0; at < op.bytes; at += 16) {
    const uint8_t *source = from(at);
    uint8_t *target = source ? to(at) : nullptr;
    if (!target)
      return false;
    std::memmove(target, source, 16);
  }
  return true;
}

void bulkLoadNow(Warp &w, const AsyncOp &op) {
  auto from = [&](uint32_t at) {
    return accessGlobal(w, op.lane, op.global + at, 16);
  };
  auto to = [&](uint32_t at) {
    return accessShared(w, op.lane, op.shared + at, 16, Access::Write, true);
  };
  if (copyPieces(op, from, to))
    arrive(w, op.lane, op.mbarrier, 0, -int64_t(op.bytes));
}
/// Between blocks of the cluster, or within one. Memory that is reached here
/// may have gone since the copy began.
void bulkCopyNow(Warp &w, const AsyncOp &op) {
  if (w.cta->running == 0)
    return w.fail(op.lane, "exits before its copy within the cluster has "
                           "completed");
  if (w.cta->options.late && !markCopy(w, op, -1))
    return;
  auto from = [&](uint32_t at) {
    return accessShared(w, op.lane, uint32_t(op.global) + at, 16, Access::Read,
                        true);
  };
  auto to = [&](uint32_t at) {
    return accessShared(w, op.lane, op.shared + at, 16, Access::Write, true);
  };
  if (copyPieces(op, from, to))
    arrive(w, op.lane, op.mbarrier, 0, -int64_t(op.bytes));
}
void bulkStoreNow(Warp &w, const AsyncOp &op) {
  auto from = [&](uint32_t at) {
    return accessShared(w, op.lane, op.shared + at, 16, Access::Read, true);
  };
  auto to = [&](uint32_t at) {
    return accessGlobal(w, op.lane, op.global + at, 16);
  };
  copyPieces(op, from, to);
}

/// ops: to, from, bytes, mbarrier. target: offsets are folded into registers by
/// nobody, so addresses of bulk copies have none.
void bulkLoad(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    AsyncOp op;
    op.kind = AsyncOp::BulkLoad;
    op.pc = w.pc;
    op.lane = firstOf(mask);
    op.shared = sharedAddress(w, i, 0, op.lane, 0);
    op.global = lane64(w, i.ops[1], op.lane);
    op.bytes = lane32(w, i.ops[2], op.lane);
    op.mbarrier = sharedAddress(w, i, 3, op.lane, 0);
    if (i.space == Space::Shared && op.shared >= clusterStride)
      return w.fail(op.lane, "a copy to shared::cta, but to another block");
    if (!bulkAligned(w, op) || !sameBlock(w, op))
      return;
    if (w.cta->options.late)
      w.cta->cluster.bulk.push_back({&w, op});
    else
      bulkLoadNow(w, op);
  }
}
/// The same, from the block's shared memory into some block's of the cluster.
void bulkCopy(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    AsyncOp op;
    op.kind = AsyncOp::BulkCopy;
    op.pc = w.pc;
    op.lane = firstOf(mask);
    op.shared = sharedAddress(w, i, 0, op.lane, 0);
    op.global = sharedAddress(w, i, 1, op.lane, 0);
    op.bytes = lane32(w, i.ops[2], op.lane);
    op.mbarrier = sharedAddress(w, i, 3, op.lane, 0);
    if (op.global >= clusterStride)
      return w.fail(op.lane, "a copy whose source is not the block's own");
    if (!bulkAligned(w, op) || !findMbarrier(w, op.lane, op.mbarrier) ||
        !sameBlock(w, op))
      return;
    if (!w.cta->options.late) {
      bulkCopyNow(w, op);
      continue;
    }
    if (!markCopy(w, op, 1))
      return;
    w.cta->cluster.bulk.push_back({&w, op});
  }
}
/// ops: to, from, bytes.
void bulkStore(Warp &w, const Instruction &i, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    AsyncOp op;
    op.kind = AsyncOp::BulkStore;
    op.pc = w.pc;
    op.lane = firstOf(mask);
    op.group = w.bulkGroup[op.lane];
    op.global = lane64(w, i.ops[0], op.lane);
    op.shared = sharedAddress(w, i, 1, op.lane, 0);
    op.bytes = lane32(w, i.ops[2], op.lane);
    if (!bulkAligned(w, op))
      return;
    if (w.cta->options.late)
      w.bulk[op.lane].push_back(op);
    else
      bulkStoreNow(w, op);
  }
}
void commitBulk(Warp &w, const Instruction &, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) { ++w.bulkGroup[lane]; });
}
void waitBulk(Warp &w, const Instruction &i, uint32_t mask) {
  eachLane(mask, [&](unsigned lane) {
    uint32_t open = w.bulkGroup[lane];
    uint32_t upTo = open - std::min(open, uint32_t(i.offset));
    auto &queue = w.bulk[lane];
    while (!queue.empty() && queue.front().group < upTo &&
           !w.cta->cluster.failed) {
      AsyncOp op = queue.take();
      execute(w, op);
    }
  });
}

bool plainAddress(Decoder &d, const Operand &op) {
  return d.address(op) && (d.inst.offset == 0 ||
                           d.fail("an offset in an address of a bulk copy"));
}

bool decodeBulkForm(Decoder &d) {
  const auto &mods = d.statement().mods; // async bulk to from ...
  const auto &ops = d.statement().operands;
  bool hinted = d.take("L2::cache_hint");
  bool isLoad =
      mods.size() > 3 && mods[2].rfind("shared", 0) == 0 && mods[3] == "global";
  d.inst.space = mods.size() > 2 && mods[2] == "shared::cta" ? Space::Shared
                                                             : Space::Cluster;
  bool isStore =
      mods.size() > 3 && mods[2] == "global" && mods[3] == "shared::cta";
  bool isCopy = mods.size() > 3 && mods[2] == "shared::cluster" &&
                mods[3] == "shared::cta";
  if (!isLoad && !isStore && !isCopy)
    return false;
  d.drop({"shared::cluster", "shared::cta", "global"});
  d.inst.run = isLoad ? bulkLoad : isStore ? bulkStore : bulkCopy;
  size_t n = isStore ? 3 : 4;
  if (!d.arity(n + hinted) || (hinted && isCopy) ||
      !d.take(isStore ? "bulk_group" : "mbarrier::complete_tx::bytes"))
    return false;
  for (size_t k = 0; k < n; ++k)
    if (!(k == 2 ? d.value(ops[k], Type::U32) : plainAddress(d, ops[k])))
      return false;
  return d.done();
}

bool decodeBulk(Decoder &d) {
  d.programOf().usesAsyncProxy = true;
  if (d.take("commit_group"))
    return d.inst.run = commitBulk, d.arity(0) && d.done();
  if (d.take("wait_group")) {
    d.take("read");
    d.inst.run = waitBulk;
    return d.arity(1) && d.integer(d.statement().operands[0], d.inst.offset) &&
           d.done();
  }
  if (d.take("prefetch")) {
    d.inst.run = [](Warp &, const Instruction &, uint32_t) {};
    return true;
  }
  return decodeBulkForm(d);
}

} // namespace

void execute(Warp &w, const AsyncOp &op) {
  // Reports name the instruction that started the work.
  int32_t pc = std::exchange(w.pc, op.pc);
  ++w.cta->cluster.effects;
  switch (op.kind) {
  case AsyncOp::CpAsync:
    copyNow(w, op);
    break;
  case AsyncOp::ArriveNoInc:
    arrive(w, op.lane, op.mbarrier, 1, 0);
    break;
  case AsyncOp::BulkLoad:
    bulkLoadNow(w, op);
    break;
  case AsyncOp::BulkStore:
    bulkStoreNow(w, op);
    break;
  case AsyncOp::BulkCopy:
    bulkCopyNow(w, op);
    break;
  case AsyncOp::Wgmma:
    executeWgmma(w, op);
    break;
  case AsyncOp::Move: {
    const Instruction &i = w.cta->program.code[size_t(op.pc)];
    std::memcpy(place(w, i.ops[0]), read(w, i.ops[1]), 128);
    break;
  }
  }
  w.pc = pc;
}

const std::vector<Opcode> &asyncOpcodes() {
  static const std::vector<Opcode> table = {{"cp", decodeCopy}};
  return table;
}

} // namespace kdac::ptx
