// Promises: the decoded form of one entry: instructions with a handler each and
// operands as places in register files, lane by lane side by side.
// Does not: hold state of a run (Machine.h).
#ifndef KDAC_PTXEMULATOR_PROGRAM_H
#define KDAC_PTXEMULATOR_PROGRAM_H

#include "Emulator.h"

namespace kdac::ptx {

struct Warp;
struct Instruction;
constexpr unsigned warpSize = 32;
constexpr uint32_t allLanes = 0xffffffff;

/// Runs an instruction for the lanes of `mask`.
using Handler = void (*)(Warp &warp, const Instruction &inst, uint32_t mask);

/// A register or constant. 16- and 32-bit values take 4 bytes a lane, 64-bit
/// ones 8; predicates are one 32-bit mask.
struct Ref {
  uint32_t offset = 0;   ///< bytes into the warp's registers or the constants
  uint8_t bits = 0;      ///< 1, 16, 32, 64; 0: none
  bool constant = false; ///< in the program's constants
};

enum class Space : uint8_t { Generic, Global, Shared, Cluster, Param, Local };

/// What a lane must wait for before an instruction may run.
enum class Converge : uint8_t { None, Warp, Members };

struct Instruction {
  Handler run = nullptr;
  const Ref *ops = nullptr; ///< in the program's pool
  int32_t line = 0;
  int32_t guard = -1; ///< offset of a predicate in the registers, or none
  bool guardNegated = false;
  Converge converge = Converge::None;
  Space space = Space::Generic;
  uint8_t bytes = 0;   ///< of an element in memory
  uint8_t vector = 1;  ///< elements of a memory access; registers of a list
  uint8_t kind = 0;    ///< a variation, as the handler defines it
  uint16_t count = 0;  ///< operands
  uint16_t dests = 0;  ///< how many of them, from the first, are written
  bool isMove = false; ///< of a whole register
  bool isMma = false;
  bool isLoad = false;         ///< ld or ldmatrix
  bool peeks = false;          ///< a load whose registers nothing but mma reads
  bool isProduct = false;      ///< wgmma.mma_async
  bool touchesProduct = false; ///< no product, but uses a register of one
  int32_t target = 0;          ///< of a branch
  int64_t offset = 0;          ///< added to an address; an immediate
};

/// Where things begin in an address space of its own, as generic addresses.
constexpr uint64_t sharedWindow = 0x0100000000000000;
constexpr uint64_t localWindow = 0x0200000000000000;
constexpr uint64_t paramWindow = 0x0300000000000000;
/// Hopper's system keeps the first KiB of shared memory.
constexpr uint32_t sharedBase = 1024;

/// Registers that every warp is given at its start, in this order, 4 bytes a
/// lane.
enum Special : uint32_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NWarpId,
  SmId,
  NSmId,
  DynamicSmem,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusteridX,
  ClusteridY,
  ClusteridZ,
  NclusteridX,
  NclusteridY,
  NclusteridZ,
  ClusterCtarank,
  ClusterNctarank,
  IsExplicitCluster, ///< a predicate
  LaneMaskEq,
  LaneMaskLt,
  LaneMaskLe,
  LaneMaskGt,
  LaneMaskGe,
  TotalSmem,
  SpecialCount
};

struct Program {
  std::string name;
  std::vector<Instruction> code; ///< ends with an implicit exit
  std::vector<std::string> text; ///< of each instruction, for messages
  std::vector<std::unique_ptr<Ref[]>> pool;
  std::vector<uint8_t> constants;
  uint32_t registerBytes = 0; ///< of a warp, special ones first
  std::vector<Parameter> params;
  uint32_t paramBytes = 0;
  uint32_t staticShared = 0, sharedAlign = 16;
  uint32_t localBytes = 0; ///< of a thread
  unsigned reqntid[3] = {0, 0, 0};
  unsigned cluster[3] = {0, 0, 0}; ///< .reqnctapercluster; 0: none
  bool explicitCluster = false;
  bool usesWgmma = false;
  bool usesAsyncProxy = false; ///< wgmma or bulk copies
};

inline size_t registerBytesOfWarp(const Program &program) {
  return program.registerBytes / 128 * 128 + 256;
}
/// CTAs of a cluster, as the launch says or else the entry; 0: neither does.
inline const unsigned *clusterOf(const Program &program, const Launch &launch) {
  return launch.cluster[0] ? launch.cluster : program.cluster;
}

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_PROGRAM_H
