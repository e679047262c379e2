// Promises: many variants compiled at once, with the tools of this machine.
// Does not: write files.
#ifndef KDAC_TOOLS_KDAC_BUILD_H
#define KDAC_TOOLS_KDAC_BUILD_H

#include "Options.h"

#include "kdac/Pipeline/Compile.h"

#include "llvm/ADT/StringMap.h"

namespace kdac {

bool isGpu(const CompileJob &job);

/// Fills `how` with the tools that `jobs` need, as options and environment name
/// them. `assembler` holds what `how` points to.
llvm::Error chooseTools(const Options &options, llvm::ArrayRef<CompileJob> jobs,
                        std::optional<Assembler> &assembler,
                        CompileOptions &how);

/// What became of the jobs, in their order.
struct Outcome {
  std::vector<std::optional<CompiledKernel>> kernels;
  std::vector<std::string> errors;       ///< one per failed job
  llvm::StringMap<std::string> measured; ///< errors of what ran, by name
};

/// Compiles all jobs on `threads` threads (0: all cores), with a line of
/// progress on stderr for each.
Outcome compileAll(llvm::ArrayRef<CompileJob> jobs,
                   const CompileOptions &options, unsigned threads);

} // namespace kdac

#endif // KDAC_TOOLS_KDAC_BUILD_H
