// Promises: one row per machine kdac compiles for; the only place that knows
// hardware limits. Does not: generate code.
#ifndef KDAC_TARGET_TARGETS_H
#define KDAC_TARGET_TARGETS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kdac {

enum class TargetKind { Host, Gpu };

/// What the compiler needs to know about one machine.
struct Target {
  std::string_view name; ///< as spelled by users: host, sm_80, sm_90a, ...
  TargetKind kind;
  std::string_view ptxFeature; ///< LLVM's PTX ISA feature, e.g. "+ptx86"
  int64_t sharedBytesPerBlock; ///< opt-in dynamic shared memory of one block
  int64_t registersPerThread;  ///< architectural limit
  bool hasWarpgroupProducts;   ///< wgmma
  bool hasDependentLaunch;     ///< kernels of other calls may be waited for
  bool hasBulkCopies;          ///< between shared and global memory
  int64_t multiprocessors;     ///< of its usual GPU: programs that run at once
  std::string_view summary;
};

/// All rows, in the order shown to users.
const std::vector<Target> &targets();

/// The row called `name`, or null.
const Target *findTarget(std::string_view name);

/// "host, sm_80, ...", for messages.
std::string targetNames();

} // namespace kdac

#endif // KDAC_TARGET_TARGETS_H
