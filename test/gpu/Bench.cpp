#include "Bench.h"

#include "kdac/Reference/Float.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace kdac::gputest {

namespace {

using reference::Buffer;
using reference::Comparison;
using reference::Layout;
using reference::Rows;

/// Launches per measurement, and microseconds that all of them should take.
constexpr int minSamples = 11, maxSamples = 50;
constexpr double sampleBudget = 2e5;
/// Events on either side of a short launch would measure themselves.
constexpr double minSampleMicroseconds = 200;
constexpr int maxSets = 12;
constexpr int warmUps = 3;

/// The numbers of a call and the shape of each of its arguments.
struct Sizes {
  const Variant &v;
  const BenchShape &shape;

  int64_t elements(const Arg &arg) const {
    int64_t hv = shape.valueHeads, state = hv * v.keyDim * v.valueDim;
    if (arg.name == "h0" || arg.name == "ht")
      return shape.sequences * state;
    if (arg.name == "offsets")
      return shape.lengths.empty() ? 0 : shape.sequences + 1;
    int64_t width = rowElements(arg);
    return arg.shape.rfind("[tokens", 0) == 0 ? shape.allTokens() * width
                                              : width;
  }
  /// Elements of one token, or of a whole parameter.
  int64_t rowElements(const Arg &arg) const {
    bool isKeyHead = arg.shape.find("HV") == std::string::npos;
    int64_t heads = isKeyHead ? shape.heads : shape.valueHeads;
    if (arg.shape.find(", K]") != std::string::npos)
      return heads * v.keyDim;
    return arg.shape.find(", V]") != std::string::npos ? heads * v.valueDim
                                                       : heads;
  }
  int64_t size(const std::string &name, const std::vector<Arg> &args) const {
    if (name == "N")
      return shape.sequences;
    if (name == "T")
      return shape.lengths.empty() ? shape.tokens : shape.allTokens();
    if (name == "H")
      return shape.heads;
    if (name == "HV")
      return shape.valueHeads;
    for (const Arg &tensor : args)
      if (name == tensor.name + "_stride")
        return rowElements(tensor);
    return 0;
  }
};

std::vector<int64_t> boundsOf(const BenchShape &shape) {
  std::vector<int64_t> bounds = {0};
  for (int64_t n = 0; n < shape.sequences; ++n)
    bounds.push_back(bounds.back() +
                     (shape.lengths.empty() ? shape.tokens : shape.lengths[n]));
  return bounds;
}

/// One set of device tensors and the argument array of a call on them.
class CallSet {
public:
  static StatusOr<std::unique_ptr<CallSet>>
  make(const Device &device, const Variant &v, const BenchShape &shape,
       Patterns &patterns, cuda::Stream stream) {
    std::unique_ptr<CallSet> set(new CallSet);
    std::vector<Arg> args = kernelArgs(v);
    set->slots.resize(args.size());
    for (size_t i = 0; i < args.size(); ++i)
      if (Status s = set->add(device, {v, shape}, args, i, patterns, stream);
          !s.ok())
        return s;
    for (uint64_t &slot : set->slots)
      set->argv.push_back(&slot);
    return set;
  }

  CallArguments arguments() const { return argv.data(); }
  double bytes() const { return total; }
  /// The tensor called `name`, or null.
  DeviceBuffer *find(const std::string &name) {
    auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }

private:
  Status add(const Device &device, const Sizes &sizes,
             const std::vector<Arg> &args, size_t i, Patterns &patterns,
             cuda::Stream stream) {
    const Arg &arg = args[i];
    if (arg.kind == ArgKind::Size) {
      slots[i] = static_cast<uint64_t>(sizes.size(arg.name, args));
      return Status::success();
    }
    if (arg.kind == ArgKind::Scale) {
      float scale = 1 / std::sqrt(static_cast<float>(sizes.v.keyDim));
      std::memcpy(&slots[i], &scale, sizeof scale);
      return Status::success();
    }
    int64_t elements = sizes.elements(arg);
    if (elements == 0)
      return Status::success(); // absent offsets: a null pointer
    size_t size = static_cast<size_t>(elements * dtypeSize(arg.dtype));
    StatusOr<DeviceBuffer> buffer = DeviceBuffer::allocate(device, size);
    if (!buffer.ok())
      return buffer.status().with(arg.name);
    Status status =
        arg.kind == ArgKind::Output ? buffer->fill(0xff, stream)
        : arg.name == "offsets"
            ? uploadOffsets(*buffer, arg.dtype, boundsOf(sizes.shape))
            : patterns.of(sizes.v, arg).fill(*buffer, elements, stream, device);
    slots[i] = buffer->address();
    total += static_cast<double>(size);
    tensors.emplace(arg.name, std::move(*buffer));
    return status;
  }

  static Status uploadOffsets(DeviceBuffer &buffer, DType dtype,
                              const std::vector<int64_t> &bounds) {
    std::vector<std::byte> bytes(buffer.bytes());
    for (size_t i = 0; i < bounds.size(); ++i)
      reference::store(bytes.data(), dtype, static_cast<int64_t>(i),
                       static_cast<double>(bounds[i]));
    return buffer.upload(bytes.data(), bytes.size());
  }

  std::vector<uint64_t> slots;
  std::vector<void *> argv;
  std::map<std::string, DeviceBuffer> tensors;
  double total = 0;
};

/// The first and the last value head: those that a wrong index misses first.
std::vector<int64_t> sampledHeads(const BenchShape &shape) {
  if (shape.valueHeads == 1)
    return {0};
  return {0, shape.valueHeads - 1};
}

/// Rows of a pattern tensor in which head i is head heads[i] of the original.
Rows sampled(const Pattern &pattern, int64_t rowElements, int64_t width,
             std::vector<int64_t> heads) {
  return [&pattern, rowElements, width,
          heads = std::move(heads)](int64_t token, int64_t head, double *row) {
    int64_t first = token * rowElements + heads[head] * width;
    for (int64_t i = 0; i < width; ++i)
      row[i] = pattern.at(first + i);
  };
}

/// The oracle's operands for the sampled heads. Each has a key head of its own
/// here, whatever the original grouping.
reference::Operands sampledOperands(const Variant &v, const BenchShape &shape,
                                    Patterns &patterns) {
  Sizes sizes{v, shape};
  std::vector<int64_t> valueHeads = sampledHeads(shape), keyHeads;
  for (int64_t head : valueHeads)
    keyHeads.push_back(head / (shape.valueHeads / shape.heads));
  std::map<std::string, Rows> rows;
  for (const Arg &arg : kernelArgs(v)) {
    if (arg.kind != ArgKind::Input || arg.name == "offsets")
      continue;
    bool isKeyHead = arg.shape.find("HV") == std::string::npos;
    int64_t heads = isKeyHead ? shape.heads : shape.valueHeads;
    int64_t row = arg.name == "h0" ? heads * v.keyDim * v.valueDim
                                   : sizes.rowElements(arg);
    rows[arg.name] = sampled(patterns.of(v, arg), row, row / heads,
                             isKeyHead ? keyHeads : valueHeads);
  }
  const Recurrence &family = v.row();
  reference::Operands op;
  op.heads = op.valueHeads = static_cast<int64_t>(valueHeads.size());
  op.keyDim = v.keyDim;
  op.valueDim = v.valueDim;
  op.offsets = boundsOf(shape);
  op.q = *v.l2norm ? reference::l2norm(rows["q"], v.keyDim) : rows["q"];
  op.k = *v.l2norm ? reference::l2norm(rows["k"], v.keyDim) : rows["k"];
  op.v = rows["v"];
  op.perChannel = family.decay == Decay::Channel;
  if (family.decay == Decay::HeadConstant)
    rows["g"] = [constant = rows["g"]](int64_t, int64_t head, double *x) {
      constant(0, head, x);
    };
  if (family.decay != Decay::None)
    op.decay = reference::logDecay(
        {*v.gate, rows["A_log"], rows["dt_bias"], v.lowerBound}, rows["g"],
        op.perChannel ? v.keyDim : 1);
  if (*v.beta != Beta::None)
    op.beta = reference::writeStrength(*v.beta, rows["beta"]);
  op.delta = family.erase == Erase::Delta;
  op.a = rows["a"];
  op.b = rows["b"];
  op.initial = rows["h0"];
  op.layout = v.stateLayout;
  op.scale = 1 / std::sqrt(static_cast<float>(v.keyDim));
  return op;
}

/// A tensor [rows, heads, width] of the device, reduced to the sampled heads.
StatusOr<Buffer> sampledOutput(const DeviceBuffer &from,
                               const std::string &name, DType dtype,
                               int64_t rows, int64_t heads, int64_t width,
                               const std::vector<int64_t> &samples) {
  std::vector<std::byte> bytes(from.bytes());
  if (Status s = from.download(bytes.data(), bytes.size()); !s.ok())
    return s;
  auto count = static_cast<int64_t>(samples.size());
  Buffer result(name, ArgKind::Output, dtype,
                Layout{rows, count, width, count * width});
  int64_t size = dtypeSize(dtype);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<std::byte *>(result.data()) +
                      result.layout().at(row, i, 0) * size,
                  bytes.data() + (row * heads + samples[i]) * width * size,
                  static_cast<size_t>(width * size));
  return result;
}

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
                              std::vector<std::unique_ptr<CallSet>> &sets,
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
  std::vector<std::unique_ptr<CallSet>> sets;
  double wanted = 2.0 * static_cast<double>(device.info().l2Bytes), held = 0;
  while (sets.empty() || (held < wanted && sets.size() < maxSets)) {
    auto set = CallSet::make(device, v, shape, patterns, stream->get());
    if (!set.ok())
      return set.status();
    held += (*set)->bytes();
    sets.push_back(std::move(*set));
  }
  session.beat();
  CallSet &first = *sets.front();
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
