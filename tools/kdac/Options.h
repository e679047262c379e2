// Promises: kdac's command line as plain data, or what to print and the exit
// code. Does not: use LLVM, or know what a command does.
#ifndef KDAC_TOOLS_KDAC_OPTIONS_H
#define KDAC_TOOLS_KDAC_OPTIONS_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdac {

/// A variant option or schedule override, as a flag.
struct FlagHelp {
  std::string name, values, help;
};

enum class Command { Compile, Emit, Check, List, Embed };

/// Everything the user said. Empty and zero: not said.
struct Options {
  Command command = Command::List;
  /// --form=chunk and so on, in the order given; l2norm has true or false.
  std::vector<std::pair<std::string, std::string>> flags;

  // compile
  std::string spec;                 ///< pack spec; also list: spec or pack
  std::vector<std::string> targets; ///< also list: of the spec
  std::string output;               ///< the .kdac file; emit: the text
  std::string looseDir;             ///< directory for .ptx, .cubin, .so
  std::string tritonDir;            ///< directory for what Triton loads
  std::string abi;   ///< triton or bare; default: see Options.cpp
  std::string ptxas; ///< explicit path
  bool assemble = true;
  bool check = false; ///< run host kernels against the oracle
  int64_t jobs = 0;

  // emit and check
  std::string target;
  std::string stage;

  // check
  int64_t tokens = 300, sequences = 2, heads = 2, valueHeads = 0, seed = 42,
          columns = 0;
  std::vector<int64_t> lengths;
  std::string recipe = "random";

  // list
  std::string ledger;

  // embed; output is a folder
  std::string name;
  std::string object; ///< machine of an object file; empty: bytes in C
  bool tritonAot = false;
};

/// Parses, or says how to exit: help was printed (0), or a sentence (2).
struct ParsedCommandLine {
  Options options;
  std::optional<int> exitCode;
};
ParsedCommandLine parseCommandLine(int argc, const char *const *argv,
                                   const std::vector<FlagHelp> &variantFlags,
                                   const std::vector<FlagHelp> &scheduleFlags,
                                   const std::string &targetNames,
                                   const std::string &recipeNames);

} // namespace kdac

#endif // KDAC_TOOLS_KDAC_OPTIONS_H
