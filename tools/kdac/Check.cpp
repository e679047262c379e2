// kdac check: one kernel on this CPU against the oracle.
#include "../Table.h"
#include "Commands.h"
#include "HostCheck.h"

#include "kdac/Runtime/Call.h"
#include "kdac/Runtime/HostLaunch.h"

#include "llvm/ADT/STLExtras.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

/// A sentence if the buffers of a case would not fit into a usual memory.
static std::optional<std::string> tooLarge(const reference::CaseSpec &spec) {
  constexpr double limit = 1 << 30; // elements of one tensor
  double tokens = double(spec.tokens) * double(spec.sequences);
  double sequences = double(spec.sequences);
  if (!spec.lengths.empty()) {
    tokens = 0;
    for (int64_t length : spec.lengths)
      tokens += double(length);
    sequences = double(spec.lengths.size());
  }
  double heads = double(std::max(spec.heads, spec.valueHeads));
  double key = double(spec.variant.keyDim);
  double value = double(spec.variant.valueDim);
  double elements = spec.variant.form == Form::Rows
                        ? tokens * double(spec.columns)
                    : spec.variant.form == Form::Attention
                        ? tokens * key + sequences * heads * key
                    : spec.variant.form == Form::Matmul
                        ? std::max(tokens, sequences * double(spec.outputs)) *
                              double(std::max(spec.columns, spec.outputs))
                    : spec.variant.form == Form::Prompt
                        ? tokens * heads * (key + value)
                        : heads * std::max(tokens * std::max(key, value),
                                           sequences * key * value);
  if (elements <= limit)
    return std::nullopt;
  return formatv("the case has tensors of {0:e1} elements; up to 1.1e+09 work",
                 elements)
      .str();
}

/// Every launch of one call, in order.
static std::optional<std::string> callOnHost(const HostProgram &program,
                                             reference::Case &c) {
  StatusOr<std::vector<int64_t>> grids =
      gridsOf(program.variant, Processors(), c.argv());
  if (!grids.ok())
    return grids.status().message();
  for (auto [grid, kernel] : zip(*grids, program.kernels))
    if (!runOnHost(kernel.entry, c.argv(), grid, kernel.scratchBytes))
      return "no memory for scratch";
  return std::nullopt;
}

/// The call, and with a log the one that commits.
static std::optional<std::string> runOnHost(const HostProgram &program,
                                            reference::Case &c) {
  StatusOr<int64_t> bytes = workspaceBytes(program.variant, c.argv());
  if (!bytes.ok())
    return bytes.status().message();
  c.provideWorkspace(*bytes);
  std::optional<std::string> problem = callOnHost(program, c);
  if (problem || !c.commits())
    return problem;
  c.commit(true);
  problem = callOnHost(program, c);
  c.commit(false);
  return problem;
}

Expected<reference::CheckResult> checkOnHost(const CompileJob &job,
                                             const reference::CaseSpec &spec) {
  if (std::optional<std::string> problem = reference::validate(spec))
    return createStringError(inconvertibleErrorCode(), *problem);
  if (std::optional<std::string> problem = tooLarge(spec))
    return createStringError(inconvertibleErrorCode(), *problem);
  Expected<HostProgram> program = compileHere(job);
  if (!program)
    return program.takeError();
  reference::Case testCase = reference::makeCase(spec);
  auto run = [&](reference::Case &c) { return runOnHost(*program, c); };
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
  outs() << formatTable(rows);
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
  spec.columns = options.columns;
  if (spec.variant.form == Form::Rows)
    spec.sequences = 1;
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
