// Address spaces, and what an access to them may be refused for.
#include "Lanes.h"

#include <cstdio>

namespace kdac::ptx {

uint64_t Memory::add(void *host, uint64_t bytes) {
  constexpr uint64_t gap = 1 << 16;
  uint64_t base = next;
  blocks[base] = {base, bytes, static_cast<uint8_t *>(host)};
  next = (base + bytes + gap + 255) / 256 * 256;
  return base;
}

bool Memory::remove(uint64_t base) { return blocks.erase(base) == 1; }

const Memory::Block *Memory::find(uint64_t address, uint64_t bytes) const {
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin())
    return nullptr;
  const Block &block = std::prev(it)->second;
  bool inside = address - block.base <= block.bytes &&
                bytes <= block.bytes - (address - block.base);
  return inside ? &block : nullptr;
}

static std::string hex(uint64_t x) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx",
                static_cast<unsigned long long>(x));
  return text;
}

std::string Memory::describe(uint64_t address) const {
  auto it = blocks.upper_bound(address);
  std::string text;
  if (it != blocks.begin()) {
    const Block &before = std::prev(it)->second;
    text = std::to_string(address - before.base) + " bytes into a block of " +
           std::to_string(before.bytes) + " at " + hex(before.base);
  }
  if (it != blocks.end())
    text += (text.empty() ? "" : ", ") + std::to_string(it->first - address) +
            " bytes before the block at " + hex(it->first);
  return text.empty() ? "there is no block" : text;
}

uint8_t *accessGlobal(Warp &w, unsigned lane, uint64_t address,
                      unsigned bytes) {
  if (address % bytes)
    return w.fail(lane, "misaligned global access of " + std::to_string(bytes) +
                            " bytes at " + hex(address)),
           nullptr;
  Memory::Block &last = w.cta->lastBlock;
  if (address - last.base < last.bytes &&
      bytes <= last.bytes - (address - last.base))
    return last.host + (address - last.base);
  const Memory::Block *block = w.cta->memory.find(address, bytes);
  if (!block && w.cta->globals)
    block = w.cta->globals->find(address, bytes);
  if (!block)
    return w.fail(lane, "global access of " + std::to_string(bytes) +
                            " bytes outside of all blocks, at " + hex(address) +
                            ": " + w.cta->memory.describe(address)),
           nullptr;
  last = *block;
  return block->host + (address - block->base);
}

/// The number of a thread in its cluster.
static uint16_t numberOf(const Warp &w, unsigned lane) {
  return uint16_t(w.cta->rank * 1024 + w.id * warpSize + lane);
}
/// Its fences so far that order what it writes to the shared memory of `owner`.
static uint16_t fencesOf(const Warp &w, unsigned lane, const Cta &owner) {
  return uint16_t(w.cta == &owner ? w.proxyEpoch[lane]
                                  : w.remoteProxyEpoch[lane]);
}

/// Whether that thread has fenced since.
static bool fencedSince(const Cta::Writer &by, const Cta &owner) {
  unsigned thread = by.thread % 1024;
  const Cta &block = *owner.cluster.ctas[by.thread / 1024];
  return fencesOf(block.warps[thread / warpSize], thread % warpSize, owner) !=
         by.epoch;
}

/// Whoever wrote it by ordinary stores must have fenced since, or whoever has
/// read that: a fence anywhere on the way from one access to the other counts.
static bool proxyOrdered(Warp &w, Cta &cta, unsigned lane, uint32_t at,
                         unsigned bytes) {
  for (uint32_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) {
    Cta::Writer writer = cta.writers[word];
    if (writer.thread == 0xffff)
      continue;
    Cta::Writer reader = cta.lastReaders[word];
    if (reader.thread != 0xffff && fencedSince(reader, cta))
      continue;
    unsigned thread = writer.thread % 1024;
    const Cta &block = *cta.cluster.ctas[writer.thread / 1024];
    if (!fencedSince(writer, cta)) {
      std::string of =
          &block == w.cta ? "" : " of block " + std::to_string(block.block);
      w.fail(lane, "the asynchronous proxy touches shared memory at " +
                       hex(sharedBase + word * 4) + ", which thread " +
                       std::to_string(thread) + of +
                       " wrote without fence.proxy.async since");
      return false;
    }
  }
  return true;
}

uint8_t *accessShared(Warp &w, unsigned lane, uint32_t address, unsigned bytes,
                      Access how, bool async) {
  Cta *owner = sharedOwner(w, lane, address);
  if (!owner)
    return nullptr;
  Cta &cta = *owner;
  uint32_t at = address - sharedBase;
  if (address < sharedBase || at > cta.shared.size() ||
      bytes > cta.shared.size() - at)
    return w.fail(lane, "shared access of " + std::to_string(bytes) +
                            " bytes at " + hex(address) + ", but there are " +
                            std::to_string(cta.shared.size()) + " from " +
                            hex(sharedBase)),
           nullptr;
  if (how == Access::Write && cta.program.usesWgmma &&
      !checkReaders(w, cta, lane, at, bytes))
    return nullptr;
  if (!cta.copies.empty() && !checkCopies(w, cta, lane, at, bytes, how))
    return nullptr;
  uint8_t *valid = &cta.valid[at];
  if (how == Access::Write)
    std::memset(valid, 0xff, bytes);
  else if (how == Access::Read && cta.options.initialised)
    for (unsigned i = 0; i < bytes; ++i)
      if (!valid[i])
        return w.fail(lane, "reads shared memory at " + hex(address + i) +
                                " that nobody has written"),
               nullptr;
  if (cta.options.proxies && cta.program.usesAsyncProxy) {
    if (async && !proxyOrdered(w, cta, lane, at, bytes))
      return nullptr;
    Cta::Writer self = {numberOf(w, lane), fencesOf(w, lane, cta)};
    for (uint32_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) {
      if (how == Access::Write) {
        cta.writers[word] = async ? Cta::Writer() : self;
        cta.lastReaders[word] = {};
      } else if (!async && how == Access::Read) {
        cta.lastReaders[word] = self;
      }
    }
  }
  return &cta.shared[at];
}

static uint8_t *accessParam(Warp &w, unsigned lane, uint64_t address,
                            unsigned bytes) {
  const std::vector<uint8_t> &params = w.cta->launch.params;
  if (address > params.size() || bytes > params.size() - address)
    return w.fail(lane, "access outside of the parameters"), nullptr;
  return const_cast<uint8_t *>(params.data()) + address;
}

static uint8_t *accessLocal(Warp &w, unsigned lane, uint64_t address,
                            unsigned bytes) {
  uint32_t size = w.cta->program.localBytes;
  if (address > size || bytes > size - address)
    return w.fail(lane, "access outside of local memory"), nullptr;
  return &w.local[size_t(lane) * size + address];
}

uint8_t *access(Warp &w, unsigned lane, Space space, uint64_t address,
                unsigned bytes, Access how) {
  if (space == Space::Generic) {
    uint64_t window = address >> 56 << 56;
    space = window == sharedWindow  ? Space::Cluster
            : window == localWindow ? Space::Local
            : window == paramWindow ? Space::Param
                                    : Space::Global;
    if (space != Space::Global)
      address -= window;
  }
  if (space != Space::Global && address % bytes)
    return w.fail(lane, "misaligned access of " + std::to_string(bytes) +
                            " bytes at " + hex(address)),
           nullptr;
  switch (space) {
  case Space::Shared:
    if (address >= clusterStride)
      return w.fail(lane, "a shared::cta access at " + hex(address) +
                              ", an address of shared::cluster"),
             nullptr;
    [[fallthrough]];
  case Space::Cluster:
    return accessShared(w, lane, static_cast<uint32_t>(address), bytes, how,
                        false);
  case Space::Param:
    return accessParam(w, lane, address, bytes);
  case Space::Local:
    return accessLocal(w, lane, address, bytes);
  default:
    return accessGlobal(w, lane, address, bytes);
  }
}

} // namespace kdac::ptx
