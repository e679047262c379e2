// Promises: the commands of kdac, each from options to an exit code. Does not:
// parse command lines.
#ifndef KDAC_TOOLS_KDAC_COMMANDS_H
#define KDAC_TOOLS_KDAC_COMMANDS_H

#include "Options.h"

#include "kdac/Pipeline/Compile.h"

namespace kdac {

/// 0 done, 1 a check failed, 2 refused: one sentence on stderr says why.
int runCompile(const Options &options);
int runEmit(const Options &options);
int runCheck(const Options &options);
int runList(const Options &options);
int runEmbed(const Options &options);

/// Prints `kdac: message` and returns 2.
int refuse(const llvm::Twine &message);

/// The variant that flags name, for `target`, resolved.
llvm::Expected<CompileJob> jobFromFlags(const Options &options,
                                        const std::string &target);

/// All of a pack spec file.
llvm::Expected<std::vector<CompileJob>>
jobsFromSpec(const std::string &path, const std::vector<std::string> &targets);

/// Writes `bytes` beside `path` and renames, so that no half file remains.
llvm::Error writeFile(const llvm::Twine &path, llvm::StringRef bytes);

} // namespace kdac

#endif // KDAC_TOOLS_KDAC_COMMANDS_H
