#include "Bench.h"
#include "Graphs.h"
#include "Timing.h"

#include <algorithm>
#include <cstdio>

namespace kdac::selftest {

namespace {

/// Samples of a measurement, and microseconds that all of them should take.
constexpr int minSamples = 11, maxSamples = 50;
constexpr double sampleBudget = 2e5;
/// Events on either side of a shorter sample would measure themselves, so it
/// holds several launches.
constexpr double minSampleMicroseconds = 200;
/// Shorter launches are replayed as a graph: the host enqueues them no faster
/// than the device runs them. Of the step form longer ones are as well, since
/// engines decode from graphs: in a stream 2 us more pass between launches.
constexpr double graphMicroseconds = 20, stepGraphMicroseconds = 100;
constexpr double minGraphMicroseconds = 1000;
/// Of small shapes many, since what rotates is to be more than the L2.
constexpr size_t maxSets = 128;
constexpr int warmUps = 3;

} // namespace

BenchRunner::BenchRunner(const Session &session, const Device &device)
    : session(session), device(device),
      patterns(session.seed, *reference::findRecipe(session.settings.inputs)),
      oracle(session, patterns) {}

StatusOr<BenchRunner::Sets> BenchRunner::makeSets(const PackVariant &pack,
                                                  const BenchShape &shape,
                                                  cuda::Stream stream) {
  const Variant &variant = pack.variant;
  Sets sets;
  double wanted = 2.0 * static_cast<double>(device.info().l2Bytes), held = 0;
  while (sets.empty() || (held < wanted && sets.size() < maxSets)) {
    auto set = BenchCall::make(device, variant, shape, patterns, stream);
    if (!set.ok())
      return set.status();
    if (Status s = (*set)->bringWorkspace(device, pack); !s.ok())
      return s;
    held += (*set)->bytes();
    sets.push_back(std::move(*set));
  }
  return sets;
}

Status BenchRunner::checkHeads(const GpuKernel &kernel, const BenchShape &shape,
                               BenchCall &call, cuda::Stream stream,
                               Entry &entry) {
  const Variant &v = kernel.variant().variant;
  if (Status s = kernel.launch(stream, call.arguments()); !s.ok())
    return s;
  if (v.log) {
    call.commit(true);
    Status s = kernel.launch(stream, call.arguments());
    call.commit(false);
    if (!s.ok())
      return s;
  }
  {
    Device::Scope scope(device);
    if (Status s = device.driver().check(
            device.driver().streamSynchronize(stream), "the kernel");
        !s.ok())
      return s;
  }
  return oracle.check(v, shape, call, entry);
}

StatusOr<double> BenchRunner::time(const GpuKernel &kernel, const Sets &sets,
                                   cuda::Stream stream,
                                   const GpuKernel::Grids &grids,
                                   bool &isGraph) {
  size_t next = 0;
  int launches = 1;
  auto enqueue = [&] {
    Status status;
    for (int i = 0; i < launches && status.ok(); ++i)
      status =
          kernel.launchChecked(stream, sets[next++ % sets.size()]->arguments(),
                               grids, session.settings.overlap);
    return status;
  };
  StatusOr<double> guess = medianMicroseconds(device, stream, warmUps, enqueue);
  if (!guess.ok())
    return guess;
  double one = std::max(*guess, 1.0);
  bool isStep = kernel.variant().variant.form == Form::Step;
  isGraph = one < (isStep ? stepGraphMicroseconds : graphMicroseconds);
  launches = std::max(
      1, static_cast<int>(
             (isGraph ? minGraphMicroseconds : minSampleMicroseconds) / one));
  int samples = std::clamp(static_cast<int>(sampleBudget / (one * launches)),
                           minSamples, maxSamples);
  StatusOr<double> us = 0.0;
  if (isGraph) {
    StatusOr<Replay> graph = Replay::capture(device, stream, enqueue);
    if (!graph.ok())
      return graph.status();
    us = medianMicroseconds(device, stream, samples,
                            [&] { return graph->launch(stream); });
  } else {
    us = medianMicroseconds(device, stream, samples, enqueue);
  }
  return us.ok() ? StatusOr<double>(*us / launches) : us;
}

StatusOr<double> BenchRunner::time(const GpuKernel &kernel, const Sets &sets,
                                   cuda::Stream stream, std::string &launches,
                                   bool &isGraph) {
  StatusOr<GpuKernel::Grids> grids = kernel.check(sets[0]->arguments());
  if (!grids.ok())
    return grids.status();
  StatusOr<double> all = time(kernel, sets, stream, *grids, isGraph);
  const std::vector<Launch> &list = kernel.variant().launches;
  auto happens = [](int64_t grid) { return grid != 0; };
  if (std::count_if(grids->begin(), grids->end(), happens) < 2)
    return all;
  for (size_t i = 0; i < list.size() && all.ok(); ++i) {
    if (!happens((*grids)[i]))
      continue;
    GpuKernel::Grids alone = {};
    bool isAloneGraph = false;
    alone[i] = (*grids)[i];
    StatusOr<double> us = time(kernel, sets, stream, alone, isAloneGraph);
    if (!us.ok())
      return us;
    char text[32];
    std::snprintf(text, sizeof text, ": %.1f us\n", *us);
    launches += "  alone " + list[i].entry + text;
  }
  return all;
}

Status BenchRunner::timeCommit(const GpuKernel &kernel, const Sets &sets,
                               cuda::Stream stream, std::string &launches) {
  for (const std::unique_ptr<BenchCall> &set : sets)
    set->commit(true);
  StatusOr<GpuKernel::Grids> grids = kernel.check(sets[0]->arguments());
  bool isGraph = false;
  StatusOr<double> us = grids.ok() ? time(kernel, sets, stream, *grids, isGraph)
                                   : StatusOr<double>(grids.status());
  for (const std::unique_ptr<BenchCall> &set : sets)
    set->commit(false);
  if (!us.ok())
    return us.status();
  char text[64];
  std::snprintf(text, sizeof text, "  commit of all tokens: %.1f us\n", *us);
  launches += text;
  return Status::success();
}

StatusOr<Entry> BenchRunner::measure(const GpuKernel &kernel,
                                     const BenchShape &shape,
                                     std::string &launches) {
  StatusOr<StreamHandle> stream = StreamHandle::create(device);
  if (!stream.ok())
    return stream.status();
  StatusOr<Sets> sets = makeSets(kernel.variant(), shape, stream->get());
  if (!sets.ok())
    return sets.status();
  session.beat();
  Entry entry;
  Status correct =
      checkHeads(kernel, shape, *sets->front(), stream->get(), entry);
  if (correct.code() == ErrorCode::Device)
    return correct;
  // A wrong kernel is timed too: whoever repairs it wants to know.
  bool isGraph = false;
  StatusOr<double> us = time(kernel, *sets, stream->get(), launches, isGraph);
  if (!us.ok())
    return us.status();
  if (kernel.variant().variant.log)
    if (Status s = timeCommit(kernel, *sets, stream->get(), launches); !s.ok())
      return s;
  if (!correct.ok())
    return Status(correct.code(), correct.message() + " (it took " +
                                      std::to_string(*us) + " us)");
  entry.sequences = shape.sequences;
  entry.batch = shape.lengths.empty() ? shape.sequences : 1;
  entry.tokens = shape.lengths.empty() ? shape.tokens : shape.allTokens();
  entry.lengths = shape.lengths;
  entry.heads = shape.heads;
  entry.valueHeads = shape.valueHeads;
  entry.inputs =
      session.settings.inputs +
      " periodic seed=" + std::to_string(session.seed) +
      " heads-checked=" + std::to_string(sampledHeads(shape).size()) +
      " sets=" + std::to_string(sets->size()) + (isGraph ? " graph" : "") +
      (session.settings.overlap ? " overlapped" : "");
  entry.microseconds = *us;
  entry.floorMicroseconds = floorMicroseconds(sets->front()->bytes());
  return entry;
}

Outcome BenchRunner::run(const PackReader &pack, const PackVariant &variant,
                         const std::vector<BenchShape> &shapes) {
  std::string name = variant.name();
  StatusOr<GpuKernel> kernel = GpuKernel::load(device, pack, variant);
  if (!kernel.ok()) {
    std::fprintf(session.log, "FAIL %s\n", kernel.status().message().c_str());
    return Outcome::Failed;
  }
  Outcome outcome = Outcome::Passed;
  for (const BenchShape &shape : shapes) {
    if (!suits(variant.variant, shape))
      continue;
    std::string launches;
    StatusOr<Entry> entry = measure(*kernel, shape, launches);
    if (!entry.ok()) {
      std::fprintf(session.log, "FAIL %s %s: %s\n", name.c_str(),
                   shape.spelled().c_str(), entry.status().message().c_str());
      if (entry.status().code() == ErrorCode::Device)
        return Outcome::Lost;
      outcome = Outcome::Failed;
      continue;
    }
    entry->digest = codeDigest(pack, variant);
    entry->compiledByDriver = kernel->origin().rfind("ptx", 0) == 0;
    std::fprintf(session.log,
                 "time %s %s: %.1f us, floor %.1f us (%.0f %%), error %.2g "
                 "%.2g\n%s",
                 name.c_str(), shape.spelled().c_str(), *entry->microseconds,
                 entry->floorMicroseconds,
                 100 * entry->floorMicroseconds / *entry->microseconds,
                 entry->errorOut, entry->errorState.value_or(0),
                 launches.c_str());
    if (Status s = appendLines(session.settings.ledger,
                               {ledgerLine(session.machine, variant, *entry)});
        !s.ok()) {
      std::fprintf(session.log, "FAIL %s: %s\n", name.c_str(),
                   s.message().c_str());
      outcome = Outcome::Failed;
    }
  }
  return outcome;
}

} // namespace kdac::selftest
