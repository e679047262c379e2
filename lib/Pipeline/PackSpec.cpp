#include "kdac/Pipeline/PackSpec.h"
#include "kdac/Target/Targets.h"
#include "kdac/Variant/Options.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"

using namespace llvm;

namespace kdac {

ArrayRef<ScheduleOption> scheduleOptions() {
  static constexpr ScheduleOption table[] = {
      {"chunk", "a power of two from 1 to 256", "tokens of one loop iteration",
       &ScheduleOptions::chunk, 0},
      {"v-tile", "a multiple of 16 up to 256", "columns of V of one program",
       &ScheduleOptions::vTile, 16},
      {"warps", "a power of two from 1 to 32", "warps of a thread block",
       &ScheduleOptions::warps, 0},
      {"min-blocks", "a number from 1 to 32", "blocks that an SM is to hold",
       &ScheduleOptions::minBlocks, 1},
      {"segments", "a number from 1 to 32",
       "parts of the sequences of few programs; 1: never cut them",
       &ScheduleOptions::segments, 1},
      {"roles", "fused, split, warps or cluster",
       "one chunk kernel; two with a workspace; one of specialised warps; or "
       "that in clusters of two, which have half of V each and share what they "
       "prepare",
       nullptr, 0, &ScheduleOptions::roles},
      {"order", "longest or given",
       "of packed sequences where warps have roles: the longest first, or as "
       "they are given",
       nullptr, 0, &ScheduleOptions::order},
  };
  return table;
}

const ScheduleOption *findScheduleOption(StringRef name) {
  auto *found = find_if(scheduleOptions(), [&](const ScheduleOption &option) {
    return option.name == name;
  });
  return found == scheduleOptions().end() ? nullptr : found;
}

/// True if `list`, "a, b or c", has `word`.
static bool lists(StringRef list, StringRef word) {
  auto [most, last] = list.rsplit(" or ");
  SmallVector<StringRef> words;
  most.split(words, ", ");
  return word == last || is_contained(words, word);
}

std::optional<std::string> ScheduleOption::set(ScheduleOptions &schedule,
                                               StringRef value) const {
  if (word) {
    if (!lists(values, value))
      return (name + " '" + value + "' is not supported; use " + values).str();
    schedule.*word = value.str();
    return std::nullopt;
  }
  int64_t number, limit = name == "chunk" || name == "v-tile" ? 256 : 32;
  bool valid = !value.getAsInteger(10, number) && number >= 1 &&
               number <= limit &&
               (step ? number % step == 0 : isPowerOf2_64(number));
  if (!valid)
    return (name + " '" + value + "' is not supported; use " + values).str();
  schedule.*field = number;
  return std::nullopt;
}

/// Sets the option or schedule override called `name`, which exists.
static std::optional<std::string> setOption(CompileJob &job, StringRef name,
                                            StringRef value) {
  if (const ScheduleOption *option = findScheduleOption(name))
    return option->set(job.schedule, value);
  return findVariantOption(name)->set(job.variant, value);
}

namespace {

/// An option with the values it takes in turn, and where it was written.
struct Choice {
  std::string name;
  SmallVector<std::pair<std::string, yaml::Node *>> values;
};
using Choices = SmallVector<Choice>;

class Parser {
public:
  Parser(StringRef text, StringRef fileName,
         ArrayRef<std::string> targetOverride)
      : stream(MemoryBufferRef(text, fileName), sourceManager,
               /*ShowColors=*/false),
        targets(targetOverride), overridden(!targetOverride.empty()) {
    sourceManager.setDiagHandler(
        [](const SMDiagnostic &diagnostic, void *self) {
          static_cast<Parser *>(self)->note(diagnostic);
        },
        this);
  }

  Expected<std::vector<CompileJob>> parse();

private:
  void note(const SMDiagnostic &diagnostic);
  /// Records an error at `node`; always false.
  bool fail(yaml::Node *node, const Twine &message);
  std::optional<std::string> scalar(yaml::Node *node, StringRef what);
  bool parseRoot(yaml::Node *root);
  bool parseTargets(yaml::Node *node);
  bool parseOptions(yaml::Node *node, Choices &choices, bool allowLists);
  bool parseValues(yaml::Node *node, Choice &choice, bool allowLists);
  bool parseVariants(yaml::Node *node);
  bool expand(yaml::Node *entry, ArrayRef<Choice> choices, CompileJob job);
  bool addForTargets(yaml::Node *entry, const CompileJob &job);

  SourceMgr sourceManager;
  yaml::Stream stream;
  std::string error; ///< the first error
  std::vector<std::string> targets;
  bool overridden;
  Choices defaults;
  std::vector<CompileJob> jobs;
  StringSet<> names;
};

} // namespace

void Parser::note(const SMDiagnostic &diagnostic) {
  if (!error.empty())
    return;
  error = (diagnostic.getFilename() + ":" + Twine(diagnostic.getLineNo()) +
           ": " + diagnostic.getMessage())
              .str();
}

bool Parser::fail(yaml::Node *node, const Twine &message) {
  stream.printError(node, message);
  return false;
}

std::optional<std::string> Parser::scalar(yaml::Node *node, StringRef what) {
  auto *value = dyn_cast_or_null<yaml::ScalarNode>(node);
  if (!value) {
    if (node)
      fail(node, "expected one value for " + what);
    return std::nullopt;
  }
  SmallString<32> storage;
  return value->getValue(storage).str();
}

bool Parser::parseTargets(yaml::Node *node) {
  auto *list = dyn_cast_or_null<yaml::SequenceNode>(node);
  if (!list)
    return fail(node, "expected a list of targets out of " + targetNames());
  std::vector<std::string> names;
  for (yaml::Node &item : *list) {
    std::optional<std::string> name = scalar(&item, "a target");
    if (!name)
      return false;
    if (!findTarget(*name))
      return fail(&item, "unknown target '" + *name + "'; use one of " +
                             targetNames());
    names.push_back(*name);
  }
  if (!overridden)
    targets = std::move(names);
  return true;
}

bool Parser::parseValues(yaml::Node *node, Choice &choice, bool allowLists) {
  auto *list = dyn_cast_or_null<yaml::SequenceNode>(node);
  if (!list) {
    std::optional<std::string> value = scalar(node, choice.name);
    if (value)
      choice.values.push_back({*value, node});
    return value.has_value();
  }
  if (!allowLists)
    return fail(node, "expected one value for " + choice.name +
                          "; lists belong into variants");
  for (yaml::Node &item : *list) {
    std::optional<std::string> value = scalar(&item, choice.name);
    if (!value)
      return false;
    choice.values.push_back({*value, &item});
  }
  return !choice.values.empty() ||
         fail(node, "expected at least one value for " + choice.name);
}

/// Reads a mapping of options; checks each value alone, where its line is
/// known.
bool Parser::parseOptions(yaml::Node *node, Choices &choices, bool allowLists) {
  auto *mapping = dyn_cast_or_null<yaml::MappingNode>(node);
  if (!mapping)
    return fail(node, "expected options such as 'recurrence: kda'");
  for (yaml::KeyValueNode &entry : *mapping) {
    std::optional<std::string> key = scalar(entry.getKey(), "an option");
    if (!key)
      return false;
    if (!findVariantOption(*key) && !findScheduleOption(*key))
      return fail(entry.getKey(),
                  "unknown option '" + *key +
                      "'; `kdac compile --help` lists the options");
    Choice choice{*key, {}};
    if (!parseValues(entry.getValue(), choice, allowLists))
      return false;
    CompileJob ignored;
    for (auto &[value, where] : choice.values)
      if (auto problem = setOption(ignored, choice.name, value))
        return fail(where, *problem);
    choices.push_back(std::move(choice));
  }
  return !stream.failed();
}

bool Parser::addForTargets(yaml::Node *entry, const CompileJob &job) {
  for (const std::string &target : targets) {
    CompileJob forTarget = job;
    forTarget.variant.target = target;
    if (std::optional<std::string> problem = resolve(forTarget.variant))
      return fail(entry, *problem);
    std::string name = variantName(forTarget.variant);
    if (!names.insert(name).second)
      return fail(entry, "variant '" + name + "' occurs twice");
    jobs.push_back(std::move(forTarget));
  }
  return true;
}

/// Every combination of `choices`, the last one varying fastest.
bool Parser::expand(yaml::Node *entry, ArrayRef<Choice> choices,
                    CompileJob job) {
  if (choices.empty())
    return addForTargets(entry, job);
  const Choice &choice = choices.front();
  for (auto &[value, where] : choice.values) {
    CompileJob next = job;
    setOption(next, choice.name, value); // checked by parseOptions
    if (!expand(entry, choices.drop_front(), std::move(next)))
      return false;
  }
  return true;
}

bool Parser::parseVariants(yaml::Node *node) {
  auto *list = dyn_cast_or_null<yaml::SequenceNode>(node);
  if (!list)
    return fail(node, "expected a list of variants");
  for (yaml::Node &entry : *list) {
    Choices choices = defaults;
    if (!parseOptions(&entry, choices, /*allowLists=*/true) ||
        !expand(&entry, choices, {}))
      return false;
  }
  return true;
}

bool Parser::parseRoot(yaml::Node *root) {
  auto *mapping = dyn_cast_or_null<yaml::MappingNode>(root);
  if (!mapping)
    return fail(root, "expected a mapping with targets and variants");
  for (yaml::KeyValueNode &entry : *mapping) {
    std::optional<std::string> key = scalar(entry.getKey(), "a key");
    if (!key)
      return false;
    bool parsed =
        *key == "targets"    ? parseTargets(entry.getValue())
        : *key == "defaults" ? parseOptions(entry.getValue(), defaults, false)
        : *key == "variants"
            ? parseVariants(entry.getValue())
            : fail(entry.getKey(), "unknown key '" + *key +
                                       "'; use targets, defaults or variants");
    if (!parsed)
      return false;
  }
  if (targets.empty())
    return fail(root, "expected targets out of " + targetNames() +
                          " before variants");
  return !jobs.empty() || fail(root, "expected at least one variant");
}

Expected<std::vector<CompileJob>> Parser::parse() {
  auto document = stream.begin();
  bool parsed = document != stream.end() && parseRoot(document->getRoot());
  if (!parsed || stream.failed() || !error.empty())
    return createStringError(inconvertibleErrorCode(),
                             error.empty() ? "the pack spec is empty" : error);
  return std::move(jobs);
}

Expected<std::vector<CompileJob>> parsePackSpec(StringRef text,
                                                StringRef fileName,
                                                ArrayRef<std::string> targets) {
  return Parser(text, fileName, targets).parse();
}

} // namespace kdac
