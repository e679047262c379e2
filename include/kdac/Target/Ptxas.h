// Promises: a cubin and what ptxas reported about it, or an error that can be
// reproduced. Does not: read the environment, choose where to look for ptxas,
// or keep files on success.
#ifndef KDAC_TARGET_PTXAS_H
#define KDAC_TARGET_PTXAS_H

#include "kdac/Target/Targets.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kdac {

/// An assembler that answered when asked for its version.
struct Assembler {
  std::string path;
  std::string version; ///< "13.0.88"
};

/// Looks for ptxas: at `explicitPath` if that is not empty, and then nowhere
/// else, otherwise in `directories` in order. Errors name the places searched.
llvm::Expected<Assembler> findPtxas(llvm::StringRef explicitPath,
                                    llvm::ArrayRef<std::string> directories);

/// What `ptxas -v` says about one kernel. Bytes are per thread, but for
/// `sharedBytes`, the static shared memory of a block.
struct PtxasReport {
  int64_t registers = 0;
  int64_t stackBytes = 0; ///< local memory: the stack frame
  int64_t spillStoreBytes = 0;
  int64_t spillLoadBytes = 0;
  int64_t sharedBytes = 0;
  /// Lines with "Potential Performance Loss", such as a serialised wgmma.
  std::vector<std::string> performanceLosses;
};

/// Reads the report of kernel `entry` out of the output of `ptxas -v`. Error:
/// the output does not describe that kernel.
llvm::Expected<PtxasReport> parsePtxasReport(llvm::StringRef output,
                                             llvm::StringRef entry);

/// A cubin with a report for each of its kernels.
struct Assembly {
  std::string cubin;
  std::vector<PtxasReport> reports;
};

/// Assembles `ptx`, whose kernels are `entries`, for `target`. A kernel that
/// spills, uses local memory or loses performance by ptxas's own account is an
/// error, as is an output that is no cubin; `unfit`, if given, becomes its
/// name. After an error the PTX stays in `keepDir`, and the error has its path,
/// the exact command and what ptxas printed.
llvm::Expected<Assembly>
assemblePtx(const Assembler &assembler, llvm::StringRef ptx,
            llvm::ArrayRef<std::string> entries, const Target &target,
            llvm::StringRef keepDir, std::string *unfit = nullptr);

} // namespace kdac

#endif // KDAC_TARGET_PTXAS_H
