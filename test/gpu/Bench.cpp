#include "Bench.h"
#include "BenchCall.h"

#include <algorithm>
#include <cstdio>

namespace kdac::gputest {

namespace {

using reference::Buffer;
using reference::Comparison;

/// Launches per measurement, and microseconds that all of them should take.
constexpr int minSamples = 11, maxSamples = 50;
constexpr double sampleBudget = 2e5;
/// Events on either side of a short launch would measure themselves.
constexpr double minSampleMicroseconds = 200;
constexpr int maxSets = 12;
constexpr int warmUps = 3;

Status judge(Comparison comparison, double bound, int64_t width) {
  comparison.bound = bound * reference::smallSampleFactor(comparison.elements);
  comparison.rowBound =
      bound * reference::worstRowFactor * reference::smallSampleFactor(width);
  if (comparison.passed())
    return Status::success();
  return Status(ErrorCode::Corrupt,
                "sampled heads: " + reference::toString(comparison));
}

/// Median microseconds of one launch, over sets that together exceed the L2.
StatusOr<double> timeLaunches(const Device &device, cuda::Stream stream,
                              const GpuKernel &kernel,
                              std::vector<std::unique_ptr<BenchCall>> &sets,
                              int64_t grid) {
  size_t next = 0;
  auto launchMany = [&](int count) {
    Status status;
    for (int i = 0; i < count && status.ok(); ++i)
      status = kernel.launchChecked(
          stream, sets[next++ % sets.size()]->arguments(), grid);
    return status;
  };
  auto sample = [&](int samples, int launches) -> StatusOr<double> {
    std::vector<EventHandle> events;
    for (int i = 0; i <= samples; ++i) {
      StatusOr<EventHandle> event = EventHandle::create(device);
      if (!event.ok())
        return event.status();
      events.push_back(std::move(*event));
    }
    for (int i = 0; i <= samples; ++i) {
      if (Status s = events[i].record(stream); !s.ok())
        return s;
      if (i < samples)
        if (Status s = launchMany(launches); !s.ok())
          return s;
    }
    if (Status s = events.back().synchronize(); !s.ok())
      return s;
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      StatusOr<double> us = events[i + 1].microsecondsSince(events[i]);
      if (!us.ok())
        return us.status();
      times.push_back(*us / launches);
    }
    return median(std::move(times));
  };
  StatusOr<double> guess = sample(warmUps, 1);
  if (!guess.ok())
    return guess;
  double one = std::max(*guess, 1.0);
  int launches = std::max(1, static_cast<int>(minSampleMicroseconds / one));
  int samples = std::clamp(static_cast<int>(sampleBudget / (one * launches)),
                           minSamples, maxSamples);
  return sample(samples, launches);
}

} // namespace

StatusOr<double> copyBandwidth(const Device &device) {
  constexpr size_t bytes = size_t(1) << 30;
  StatusOr<StreamHandle> stream = StreamHandle::create(device);
  StatusOr<DeviceBuffer> from = DeviceBuffer::allocate(device, bytes);
  StatusOr<DeviceBuffer> to = DeviceBuffer::allocate(device, bytes);
  for (const Status &s : {stream.status(), from.status(), to.status()})
    if (!s.ok())
      return s;
  if (Status s = from->fill(0x3c, stream->get()); !s.ok())
    return s;
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    StatusOr<EventHandle> begin = EventHandle::create(device);
    StatusOr<EventHandle> end = EventHandle::create(device);
    if (!begin.ok() || !end.ok())
      return begin.ok() ? end.status() : begin.status();
    if (Status s = begin->record(stream->get()); !s.ok())
      return s;
    {
      Device::Scope scope(device);
      if (Status s = device.driver().check(
              device.driver().memcpyDtoDAsync(to->address(), from->address(),
                                              bytes, stream->get()),
              "cuMemcpyDtoD");
          !s.ok())
        return s;
    }
    if (Status s = end->record(stream->get()); !s.ok())
      return s;
    if (Status s = end->synchronize(); !s.ok())
      return s;
    StatusOr<double> us = end->microsecondsSince(*begin);
    if (!us.ok())
      return us;
    times.push_back(*us);
  }
  return 2.0 * static_cast<double>(bytes) / std::max(median(times), 1e-3);
}

BenchRunner::BenchRunner(const Session &session, const Device &device)
    : session(session), device(device), patterns(session.seed) {}

const reference::Results &BenchRunner::oracle(const Variant &variant,
                                              const BenchShape &shape) {
  std::string key = variantName(oracleVariant(variant)) + " " + shape.spelled();
  auto found = known.find(key);
  if (found != known.end())
    return found->second;
  known.clear(); // results of big shapes are big
  return known
      .emplace(key, reference::run(sampledOperands(variant, shape, patterns),
                                   session.options.threads))
      .first->second;
}

StatusOr<Entry> BenchRunner::measure(const GpuKernel &kernel,
                                     const BenchShape &shape) {
  const Variant &v = kernel.variant().variant;
  StatusOr<StreamHandle> stream = StreamHandle::create(device);
  if (!stream.ok())
    return stream.status();
  std::vector<std::unique_ptr<BenchCall>> sets;
  double wanted = 2.0 * static_cast<double>(device.info().l2Bytes), held = 0;
  while (sets.empty() || (held < wanted && sets.size() < maxSets)) {
    auto set = BenchCall::make(device, v, shape, patterns, stream->get());
    if (!set.ok())
      return set.status();
    held += (*set)->bytes();
    sets.push_back(std::move(*set));
  }
  session.beat();
  BenchCall &first = *sets.front();
  StatusOr<int64_t> grid = kernel.check(first.arguments());
  if (!grid.ok())
    return grid.status();
  if (Status s = kernel.launchChecked(stream->get(), first.arguments(), *grid);
      !s.ok())
    return s;
  if (Status s = stream->synchronize(); !s.ok())
    return s.with("the kernel");

  std::vector<int64_t> heads = sampledHeads(shape);
  StatusOr<Buffer> out =
      sampledOutput(*first.find("out"), "out", v.dtype, shape.allTokens(),
                    shape.valueHeads, v.valueDim, heads);
  StatusOr<Buffer> state =
      sampledOutput(*first.find("ht"), "ht", v.stateDtype, shape.sequences,
                    shape.valueHeads, v.keyDim * v.valueDim, heads);
  if (!out.ok() || !state.ok())
    return out.ok() ? state.status() : out.status();
  session.beat();
  const reference::Results &expected = oracle(v, shape);
  session.beat();
  reference::Tolerance tolerance =
      reference::toleranceOf(v, reference::findRecipe("random")->difficulty);
  Comparison outError = compare(*out, expected.out, shape.allTokens());
  Comparison stateError = compare(*state, expected.finalState, shape.sequences);
  if (Status s = judge(outError, tolerance.out, v.valueDim); !s.ok())
    return s;
  if (Status s = judge(stateError, tolerance.state, v.keyDim * v.valueDim);
      !s.ok())
    return s;
  StatusOr<double> us =
      timeLaunches(device, stream->get(), kernel, sets, *grid);
  if (!us.ok())
    return us.status();

  Entry entry;
  entry.sequences = shape.sequences;
  entry.batch = shape.lengths.empty() ? shape.sequences : 1;
  entry.tokens = shape.lengths.empty() ? shape.tokens : shape.allTokens();
  entry.lengths = shape.lengths;
  entry.heads = shape.heads;
  entry.valueHeads = shape.valueHeads;
  entry.inputs = "random periodic seed=" + std::to_string(session.seed) +
                 " heads-checked=" + std::to_string(heads.size()) +
                 " sets=" + std::to_string(sets.size());
  entry.errorOut = outError.relative;
  entry.errorState = stateError.relative;
  entry.microseconds = *us;
  entry.floorMicroseconds = first.bytes() / floorBytesPerMicrosecond;
  return entry;
}

Outcome BenchRunner::run(const PackReader &pack, const PackVariant &variant,
                         const std::vector<BenchShape> &shapes) {
  std::string name = variant.name();
  StatusOr<GpuKernel> kernel = GpuKernel::load(device, pack, variant);
  if (!kernel.ok()) {
    std::printf("FAIL %s\n", kernel.status().message().c_str());
    return Outcome::Failed;
  }
  Outcome outcome = Outcome::Passed;
  for (const BenchShape &shape : shapes) {
    if (shape.form != variant.variant.form)
      continue;
    StatusOr<Entry> entry = measure(*kernel, shape);
    if (!entry.ok()) {
      std::printf("FAIL %s %s: %s\n", name.c_str(), shape.spelled().c_str(),
                  entry.status().message().c_str());
      if (entry.status().code() == ErrorCode::Device)
        return Outcome::Lost;
      outcome = Outcome::Failed;
      continue;
    }
    entry->digest = codeDigest(pack, variant);
    entry->compiledByDriver = kernel->origin().rfind("ptx", 0) == 0;
    std::printf("time %s %s: %.1f us, floor %.1f us (%.0f %%), error %.2g "
                "%.2g\n",
                name.c_str(), shape.spelled().c_str(), entry->microseconds,
                entry->floorMicroseconds,
                100 * entry->floorMicroseconds / entry->microseconds,
                entry->errorOut, *entry->errorState);
    if (Status s = appendLines(session.options.ledger,
                               {ledgerLine(session.machine, variant, *entry)});
        !s.ok()) {
      std::printf("FAIL %s: %s\n", name.c_str(), s.message().c_str());
      outcome = Outcome::Failed;
    }
  }
  return outcome;
}

} // namespace kdac::gputest
