// Promises: a PTX module, as LLVM's NVPTX backend prints it, runs on this CPU
// with the results a GPU would give (up to the rounding of approximate
// instructions and of matrix sums), or stops at the first fault with its PTX
// line: out of bounds, misaligned, uninitialised shared memory, deadlock, ...
// Does not: model time or weak memory order; an instruction that it does not
// know is an error of parse().
#ifndef KDAC_PTXEMULATOR_EMULATOR_H
#define KDAC_PTXEMULATOR_EMULATOR_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kdac::ptx {

struct Program; ///< decoded code, see Program.h

/// Global memory: host buffers at made-up device addresses with gaps between.
class Memory {
public:
  struct Block {
    uint64_t base = 0, bytes = 0;
    uint8_t *host = nullptr;
  };
  /// Makes [host, host + bytes) addressable; the result is 256-byte aligned.
  uint64_t add(void *host, uint64_t bytes);
  /// The block that begins at `base` is gone; false: there is none.
  bool remove(uint64_t base);
  /// The block that holds [address, address + bytes), or null.
  const Block *find(uint64_t address, uint64_t bytes) const;
  /// "12 bytes past the end of the block of 4096 bytes at 0x...", for errors.
  std::string describe(uint64_t address) const;

  /// Where the next block goes at the earliest.
  void startAt(uint64_t address) { next = address; }

private:
  std::map<uint64_t, Block> blocks;
  uint64_t next = 0x700000000000;
};

/// What may be varied, and what is looked at.
struct Options {
  uint64_t seed = 0;       ///< 0: warps in turn; else a random schedule
  bool initialised = true; ///< reading shared memory nobody wrote is an error;
                           ///< else it reads as 0xff
  bool late = false;       ///< asynchronous work happens as late as it may
  int multiprocessors = 132;
  bool proxies = true;      ///< a missing fence.proxy.async is an error
  int threads = 1;          ///< clusters at a time
  uint64_t limit = 1 << 26; ///< warp instructions without effect: a livelock
  int64_t traceBlock = -1;  ///< print what warp `traceWarp` of it executes
  int traceWarp = 0;
};

struct Stats {
  uint64_t warpInstructions = 0, threadInstructions = 0;
};

struct Launch {
  std::string entry;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned cluster[3] = {0, 0, 0}; ///< in CTAs; 0: as the entry says
  uint32_t dynamicShared = 0;
  std::vector<uint8_t> params; ///< laid out as parameters() says
};

struct Parameter {
  uint32_t offset, bytes;
};

class Module {
public:
  /// Decodes `text`; null, and `error` with line and text, where that fails.
  static std::unique_ptr<Module> parse(std::string_view text,
                                       std::string &error);
  ~Module();

  std::vector<std::string> entries() const;
  /// The entry's parameters in order; null: no such entry.
  const std::vector<Parameter> *parameters(const std::string &entry) const;
  /// Bytes of shared memory the entry declares itself.
  uint32_t staticShared(const std::string &entry) const;

  /// Blocks on x of the clusters that the entry asks for; 0: of none.
  unsigned clusterWidth(const std::string &entry) const;

  /// Why no driver would launch that grid in the entry's clusters; empty: one
  /// would.
  std::string clusterRefusal(const Launch &launch) const;
  /// Runs a grid to its end. Empty: it ran; else what went wrong, and where.
  std::string launch(const Launch &launch, const Memory &memory,
                     const Options &options, Stats *stats = nullptr) const;

private:
  Module();
  std::map<std::string, std::unique_ptr<Program>> programs;
  std::vector<std::vector<uint8_t>> globals;
  std::unique_ptr<Memory> globalMemory;
};

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_EMULATOR_H
