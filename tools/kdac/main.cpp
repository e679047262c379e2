// kdac, the compiler driver: command line to command.
#include "Commands.h"

#include "kdac/Reference/Recipe.h"
#include "kdac/Target/Targets.h"
#include "kdac/Variant/Options.h"

#include "llvm/Support/raw_ostream.h"

using namespace kdac;

static std::vector<FlagHelp> variantFlags() {
  std::vector<FlagHelp> flags;
  for (const VariantOption &option : variantOptions())
    flags.push_back({std::string(option.name), std::string(option.values),
                     std::string(option.help)});
  return flags;
}

static std::vector<FlagHelp> scheduleFlags() {
  std::vector<FlagHelp> flags;
  for (const ScheduleOption &option : scheduleOptions())
    flags.push_back(
        {option.name.str(), option.values.str(), option.help.str()});
  return flags;
}

static int run(const Options &options) {
  switch (options.command) {
  case Command::Compile:
    return runCompile(options);
  case Command::Emit:
    return runEmit(options);
  case Command::Check:
    return runCheck(options);
  case Command::List:
    return runList(options);
  case Command::Embed:
    return runEmbed(options);
  }
  return 2;
}

int main(int argc, char **argv) {
  ParsedCommandLine parsed =
      parseCommandLine(argc, argv, variantFlags(), scheduleFlags(),
                       targetNames(), reference::recipeNames());
  if (parsed.exitCode)
    return *parsed.exitCode;
  int code = run(parsed.options);
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return code;
  std::string why = llvm::outs().error().message();
  llvm::outs().clear_error(); // else the stream ends the process its own way
  return refuse("cannot write to standard output: " + why);
}
