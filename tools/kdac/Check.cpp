// kdac check: one kernel on this CPU against the oracle.
#include "Commands.h"
#include "HostCheck.h"

#include "kdac/Runtime/HostLaunch.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

Expected<reference::CheckResult> checkOnHost(const CompileJob &job,
                                             const reference::CaseSpec &spec) {
  if (std::optional<std::string> problem = reference::validate(spec))
    return createStringError(inconvertibleErrorCode(), *problem);
  Expected<HostProgram> program = compileHere(job);
  if (!program)
    return program.takeError();
  reference::Case testCase = reference::makeCase(spec);
  auto run = [&](reference::Case &c) -> std::optional<std::string> {
    if (!runOnHost(program->kernel.entry, c.argv(), c.programs(program->vTile),
                   program->kernel.scratchBytes))
      return "no memory for scratch";
    return std::nullopt;
  };
  return reference::check(testCase, run);
}

static std::string verdict(const reference::Comparison &tensor) {
  if (tensor.flaw == reference::Flaw::Unwritten)
    return formatv("element {0} unwritten", tensor.firstBad);
  if (tensor.flaw == reference::Flaw::NotFinite)
    return formatv("element {0} not finite", tensor.firstBad);
  return tensor.passed() ? "ok" : "too far";
}

static void printResult(const reference::CheckResult &result) {
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "elements", "relative", "bound", "worst row", "bound",
       "max abs", "verdict"}};
  auto number = [](double x) { return formatv("{0:e2}", x).str(); };
  for (const reference::Comparison &tensor : result.tensors)
    rows.push_back({tensor.tensor, std::to_string(tensor.elements),
                    number(tensor.relative), number(tensor.bound),
                    number(tensor.worstRow), number(tensor.rowBound),
                    number(tensor.maxAbs), verdict(tensor)});
  printTable(rows);
  for (const std::string &failure : result.failures)
    outs() << "failed: " << failure << '\n';
}

int runCheck(const Options &options) {
  Expected<CompileJob> job = jobFromFlags(options, "host");
  if (!job)
    return refuse(toString(job.takeError()));
  reference::CaseSpec spec;
  spec.variant = job->variant;
  spec.sequences = options.sequences;
  spec.tokens = options.tokens;
  spec.lengths = options.lengths;
  spec.heads = options.heads;
  spec.valueHeads = options.valueHeads;
  spec.recipe = options.recipe;
  spec.seed = options.seed;
  Expected<reference::CheckResult> result = checkOnHost(*job, spec);
  if (!result)
    return refuse(toString(result.takeError()));
  outs() << reference::describe(spec) << '\n';
  printResult(*result);
  return result->passed() ? 0 : 1;
}

} // namespace kdac
