// Promises: the end of every tool's command line: help and refusals printed,
// with their exit code. Does not: throw; only files compiled with exceptions
// include it, since CLI11 reports through them.
#ifndef KDAC_TOOLS_PARSE_H
#define KDAC_TOOLS_PARSE_H

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

namespace kdac {

/// CLI11 takes the next word as the value of "--flag=". The flag of the first
/// such word, or nothing.
inline std::string flagWithoutValue(int argc, const char *const *argv) {
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    bool isFlag = word.size() > 3 && word.compare(0, 2, "--") == 0;
    if (isFlag && word.find('=') == word.size() - 1)
      return word.substr(0, word.size() - 1);
  }
  return "";
}

/// CLI11 says "--form: 1 required  missing" and "--form: At Most 1 ...".
inline std::string sentenceOf(const CLI::ArgumentMismatch &error) {
  std::string what = error.what(), flag = what.substr(0, what.find(':'));
  auto says = [&](const char *text) {
    return what.find(text) != std::string::npos;
  };
  return says("missing")   ? flag + " needs a value"
         : says("At Most") ? flag + " was given more than once"
                           : what;
}

/// Parses into what `app` binds, then runs `check`, which may throw a
/// CLI::ParseError of its own. The exit code where the tool has nothing left to
/// do: 0 after help, 2 after one sentence about a bad command line.
template <typename Check>
std::optional<int> parseCommandLine(CLI::App &app, const char *tool, int argc,
                                    char **argv, Check check) {
  auto refuse = [&](const std::string &sentence) {
    std::cerr << tool << ": " << sentence << "; `" << tool
              << " --help` shows what works\n";
    return 2;
  };
  if (std::string flag = flagWithoutValue(argc, argv); !flag.empty())
    return refuse(flag + " needs a value");
  try {
    app.parse(argc, argv);
    check();
  } catch (const CLI::Success &help) {
    return app.exit(help);
  } catch (const CLI::ArgumentMismatch &error) {
    return refuse(sentenceOf(error));
  } catch (const CLI::ParseError &error) {
    return refuse(error.what());
  }
  return std::nullopt;
}

} // namespace kdac

#endif // KDAC_TOOLS_PARSE_H
