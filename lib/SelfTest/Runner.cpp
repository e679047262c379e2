#include "Runner.h"
#include "LogBits.h"
#include "ScheduleBits.h"

#include <algorithm>
#include <cstdio>

namespace kdac::selftest {

namespace {

using reference::Case;
using reference::CaseSpec;
using reference::CheckResult;
using reference::Comparison;

constexpr int timedLaunches = 11;
constexpr size_t keptResults = 64;

/// Bytes that any kernel must move: each operand once.
double minimalBytes(const Case &c) {
  double bytes = 0;
  for (const reference::Buffer &b : c.buffers())
    bytes += static_cast<double>(b.layout().elements() * dtypeSize(b.dtype()));
  return bytes;
}

std::string inputsOf(const CaseSpec &spec) {
  std::string text = spec.recipe + " seed=" + std::to_string(spec.seed) +
                     reference::describeAbsent(spec);
  if (spec.tokenGap)
    text += " gap=" + std::to_string(spec.tokenGap);
  return text + " warm";
}

Entry entryOf(const Case &c, const CheckResult &result) {
  const CaseSpec &spec = c.spec();
  Entry entry;
  entry.sequences = c.sequences();
  entry.batch = spec.lengths.empty() ? c.sequences() : 1;
  entry.tokens = spec.lengths.empty() ? spec.tokens : c.tokens();
  entry.lengths = spec.lengths;
  bool isRows = spec.variant.form == Form::Rows; // H is D
  entry.heads = isRows ? c.columns() : c.heads();
  entry.valueHeads = isRows ? c.columns() : c.valueHeads();
  entry.inputs = inputsOf(spec);
  for (const Comparison &tensor : result.tensors)
    if (tensor.tensor == "out")
      entry.errorOut = tensor.relative;
    else
      entry.errorState = tensor.relative;
  entry.floorMicroseconds = floorMicroseconds(minimalBytes(c));
  return entry;
}

/// Arguments as the pack says must be those the cases are built from.
Status checkSignature(const PackVariant &variant) {
  std::vector<Arg> expected = kernelArgs(variant.variant);
  const std::vector<LaunchArg> &packed = variant.launches[0].args;
  bool same = expected.size() == packed.size() &&
              std::equal(expected.begin(), expected.end(), packed.begin(),
                         [](const Arg &a, const LaunchArg &b) {
                           return a.name == b.arg.name &&
                                  a.kind == b.arg.kind &&
                                  a.dtype == b.arg.dtype;
                         });
  if (same)
    return Status::success();
  return Status(ErrorCode::Unsupported,
                "its arguments in the pack are not those of this kdac");
}

/// How much of its bound the worst tensor used, in percent.
double usedPercent(const CheckResult &result) {
  double used = 0;
  for (const Comparison &tensor : result.tensors)
    used = std::max(used, 100 * std::max(tensor.bounded() / tensor.bound,
                                         tensor.worstRow / tensor.rowBound));
  return used;
}

} // namespace

Variant oracleVariant(Variant variant) {
  if (variant.form == Form::Chunk)
    variant.form = Form::Step;
  variant.target = "host";
  variant.precision = Precision::Default;
  variant.offsetDtype = DType::I32;
  return variant;
}

std::string codeDigest(const PackReader &pack, const PackVariant &variant) {
  const Launch &launch = variant.launches[0];
  return launch.ptxSha256.empty()
             ? pack.manifest().images[launch.images[0]].sha256
             : launch.ptxSha256;
}

const reference::Results &CaseRunner::oracle(const Case &c) {
  CaseSpec spec = c.spec();
  spec.variant = oracleVariant(spec.variant);
  std::string key = reference::describe(spec);
  auto found = known.find(key);
  if (found != known.end())
    return found->second;
  if (known.size() >= keptResults)
    known.clear();
  return known.emplace(key, reference::oracleOf(c, session.settings.threads))
      .first->second;
}

CaseRunner::Judged CaseRunner::runCase(Kernel &kernel, const CaseSpec &spec) {
  Case c = reference::makeCase(spec);
  session.beat();
  const reference::Results &expected = oracle(c);
  session.beat();
  Judged judged;
  auto launch = [&](Case &running) -> std::optional<std::string> {
    Status status = kernel.run(running);
    judged.deviceLost = status.code() == ErrorCode::Device;
    return status.ok() ? std::nullopt : std::optional(status.message());
  };
  judged.result = reference::check(c, launch, &expected);
  session.beat(); // as many launches again are timed
  judged.entry = entryOf(c, judged.result);
  if (!judged.result.passed() || session.settings.emulated)
    return judged;
  StatusOr<double> us = kernel.time(c, timedLaunches);
  if (us.ok())
    judged.entry.microseconds = *us;
  else
    judged.result.failures.push_back(us.status().message());
  return judged;
}

/// The receipt of code that is about to run is void until it has passed.
Status CaseRunner::updateReceipt(const Kernel &kernel,
                                 const PackVariant &variant, bool passed) {
  const std::string &path = session.settings.receipts;
  const Image *image = kernel.image();
  if (path.empty() || !image || image->kind != ImageKind::Cubin)
    return Status::success();
  StatusOr<Receipts> receipts = Receipts::read(path);
  if (!receipts.ok())
    return receipts.status();
  const Machine &m = session.machine;
  receipts->remove(image->sha256, m.gpu);
  if (passed)
    receipts->add({image->sha256, m.gpu, m.driver, m.date, variant.name()});
  return receipts->write(path);
}

/// The schedules of which the sizes of a call pick one; "" where there is one
/// only.
static std::vector<std::string> schedulesOf(const PackVariant &variant) {
  std::vector<std::string> schedules;
  for (const Launch &launch : variant.launches)
    if (!launch.when.empty() && std::find(schedules.begin(), schedules.end(),
                                          launch.when) == schedules.end())
      schedules.push_back(launch.when);
  if (schedules.empty())
    schedules.push_back("");
  return schedules;
}

Outcome CaseRunner::run(const PackReader &pack, const PackVariant &variant) {
  std::string name = variant.name();
  if (Status s = checkSignature(variant); !s.ok()) {
    std::fprintf(session.log, "FAIL %s: %s\n", name.c_str(),
                 s.message().c_str());
    return Outcome::Failed;
  }
  StatusOr<std::unique_ptr<Kernel>> kernel = executor.load(pack, variant);
  if (!kernel.ok()) {
    std::fprintf(session.log, "FAIL %s\n", kernel.status().message().c_str());
    return kernel.status().code() == ErrorCode::Device ? Outcome::Lost
                                                       : Outcome::Failed;
  }
  std::string origin = (*kernel)->origin();
  Status receipt = updateReceipt(**kernel, variant, /*passed=*/false);
  std::vector<std::string> lines;
  size_t count = 0, failed = 0;
  double used = 0;
  std::vector<CaseSpec> cases =
      casesOf(variant.variant, session.seed, !session.settings.emulated);
  std::vector<std::string> schedules = schedulesOf(variant);
  for (size_t run = 0; run < schedules.size() * cases.size(); ++run) {
    const CaseSpec &spec = cases[run % cases.size()];
    (*kernel)->useSchedule(schedules[run / cases.size()]);
    Judged judged = runCase(**kernel, spec);
    session.beat();
    ++count;
    if (!judged.result.passed()) {
      ++failed;
      std::fprintf(session.log, "FAIL %s: %s\n",
                   reference::describe(spec).c_str(),
                   reference::toString(judged.result).c_str());
      if (judged.deviceLost)
        return Outcome::Lost;
      continue;
    }
    used = std::max(used, usedPercent(judged.result));
    judged.entry.digest = codeDigest(pack, variant);
    judged.entry.compiledByDriver = origin.rfind("ptx", 0) == 0;
    lines.push_back(ledgerLine(session.machine, variant, judged.entry));
  }
  const Variant &v = variant.variant;
  auto expectNone = [&](const StatusOr<std::string> &differs) {
    std::string message =
        differs.ok() ? *differs : std::string(differs.status().message());
    if (!message.empty()) {
      ++failed;
      std::fprintf(session.log, "FAIL %s: %s\n", name.c_str(), message.c_str());
    }
    ++count;
  };
  if (!failed && v.log && v.stateDtype == DType::F32)
    expectNone(differenceOfCommits(**kernel, v, session.seed));
  if (!failed && schedules.size() > 1)
    expectNone(
        differenceOfSchedules(**kernel, variant, schedules, session.seed));
  std::fprintf(session.log,
               "%s %s (%s): %zu of %zu cases, %.0f %% of tolerance\n",
               failed ? "FAIL" : "ok  ", name.c_str(), origin.c_str(),
               count - failed, count, used);
  if (failed)
    return Outcome::Failed;
  if (receipt.ok())
    receipt = updateReceipt(**kernel, variant, /*passed=*/true);
  Status written = appendLines(session.settings.ledger, lines);
  for (const Status &s : {receipt, written}) {
    if (s.ok())
      continue;
    std::fprintf(session.log, "FAIL %s: %s\n", name.c_str(),
                 s.message().c_str());
    return Outcome::Failed;
  }
  return Outcome::Passed;
}

Outcome CaseRunner::bench(const PackReader &pack, const PackVariant &variant,
                          const std::vector<BenchShape> &shapes) {
  StatusOr<std::unique_ptr<Kernel>> kernel = executor.load(pack, variant);
  if (!kernel.ok()) {
    std::fprintf(session.log, "FAIL %s\n", kernel.status().message().c_str());
    return Outcome::Failed;
  }
  Outcome outcome = Outcome::Passed;
  for (const BenchShape &shape : shapes) {
    if (!suits(variant.variant, shape))
      continue;
    CaseSpec spec;
    if (shape.form == Form::Rows)
      spec.columns = shape.heads;
    spec.variant = variant.variant;
    spec.sequences = shape.sequences;
    spec.tokens = shape.tokens;
    spec.lengths = shape.lengths;
    if (shape.form != Form::Rows) {
      spec.heads = shape.heads;
      spec.valueHeads = shape.valueHeads;
    }
    spec.seed = session.seed;
    Judged judged = runCase(**kernel, spec);
    session.beat();
    if (!judged.result.passed()) {
      std::fprintf(session.log, "FAIL %s: %s\n",
                   reference::describe(spec).c_str(),
                   reference::toString(judged.result).c_str());
      outcome = Outcome::Failed;
      continue;
    }
    judged.entry.digest = codeDigest(pack, variant);
    std::fprintf(session.log, "time %s %s: %.1f us\n", variant.name().c_str(),
                 shape.spelled().c_str(), *judged.entry.microseconds);
    if (Status s =
            appendLines(session.settings.ledger,
                        {ledgerLine(session.machine, variant, judged.entry)});
        !s.ok())
      outcome = Outcome::Failed;
  }
  return outcome;
}

} // namespace kdac::selftest
