// Promises: kdac-pack's command line as plain data. Does not: open files or
// devices.
#ifndef KDAC_TOOLS_KDAC_PACK_OPTIONS_H
#define KDAC_TOOLS_KDAC_PACK_OPTIONS_H

#include "kdac/SelfTest/SelfTest.h"

#include <optional>
#include <string>

namespace kdac::packtool {

enum class Command { List, Explain, Verify, Check, Bench, Embed };

struct Options {
  Command command = Command::List;
  std::string pack;
  bool json = false;
  std::string filter; ///< regular expression on variant names

  // list and explain
  std::string ledger; ///< also written by check and bench
  std::string shape;  ///< explain: see selftest::BenchShape
  std::string gpu;    ///< explain: part of a name of kdac/Target/Gpus.h

  // check and bench
  std::string device = "host";
  selftest::Settings settings;

  // embed
  std::string outputDir = ".";
  std::string name;
};

/// Parses `argv`; `exitCode` is set where help was printed (0) or a sentence
/// (2).
Options parseOptions(int argc, char **argv, std::optional<int> &exitCode);

} // namespace kdac::packtool

#endif // KDAC_TOOLS_KDAC_PACK_OPTIONS_H
