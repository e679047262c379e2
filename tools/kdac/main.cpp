// kdac, the compiler driver: command line to command.
#include "Commands.h"

#include "kdac/Reference/Recipe.h"
#include "kdac/Target/Targets.h"
#include "kdac/Variant/Options.h"

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

int main(int argc, char **argv) {
  ParsedCommandLine parsed =
      parseCommandLine(argc, argv, variantFlags(), scheduleFlags(),
                       targetNames(), reference::recipeNames());
  if (parsed.exitCode)
    return *parsed.exitCode;
  switch (parsed.options.command) {
  case Command::Compile:
    return runCompile(parsed.options);
  case Command::Emit:
    return runEmit(parsed.options);
  case Command::Check:
    return runCheck(parsed.options);
  case Command::List:
    return runList(parsed.options);
  }
  return 2;
}
