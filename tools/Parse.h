// Promises: the end of every tool's command line: help and refusals printed,
// with their exit code. Does not: throw; only files compiled with exceptions
// include it, since CLI11 reports through them.
#ifndef KDAC_TOOLS_PARSE_H
#define KDAC_TOOLS_PARSE_H

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

namespace kdac {

/// Parses into what `app` binds, then runs `check`, which may throw a
/// CLI::ParseError of its own. The exit code where the tool has nothing left to
/// do: 0 after help, 2 after one sentence about a bad command line.
template <typename Check>
std::optional<int> parseCommandLine(CLI::App &app, const char *tool, int argc,
                                    char **argv, Check check) {
  try {
    app.parse(argc, argv);
    check();
  } catch (const CLI::Success &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    std::cerr << tool << ": " << error.what() << "; `" << tool
              << " --help` shows what works\n";
    return 2;
  }
  return std::nullopt;
}

} // namespace kdac

#endif // KDAC_TOOLS_PARSE_H
