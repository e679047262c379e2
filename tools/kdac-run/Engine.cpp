#include "Commands.h"
#include "kdac/Model/HostOps.h"

#include <algorithm>
#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>

namespace kdac::runtool {

using namespace model;

namespace {

/// Names on one line of stderr, the first few of them.
void note(const std::string &what, const std::vector<std::string> &names) {
  constexpr size_t shown = 4;
  if (names.empty())
    return;
  std::string text;
  for (size_t i = 0; i < names.size() && i < shown; ++i)
    text += (i ? ", " : "") + names[i];
  std::fprintf(stderr, "kdac-run: note: %zu %s%s ignored: %s%s\n", names.size(),
               what.c_str(), names.size() > 1 ? "s" : "", text.c_str(),
               names.size() > shown ? ", ..." : "");
}

/// Brings the files' pages into memory where they fit it, and shows how far.
void warm(const Checkpoint &checkpoint) {
  constexpr int64_t page = 4096, step = 64 << 20;
  int64_t memory =
      int64_t(::sysconf(_SC_AVPHYS_PAGES)) * int64_t(::sysconf(_SC_PAGESIZE));
  int64_t total = checkpoint.bytes(), done = 0, shown = 0;
  if (total > memory)
    return;
  bool isTerminal = ::isatty(2);
  volatile char sink = 0;
  for (const auto &[name, tensor] : checkpoint.tensors()) {
    for (int64_t at = 0; at < tensor.bytes; at += page)
      sink = tensor.data[at];
    done += tensor.bytes;
    if (!isTerminal || done - shown < step)
      continue;
    shown = done;
    std::fprintf(stderr, "\rkdac-run: loading %3.0f %%",
                 100.0 * static_cast<double>(done) /
                     static_cast<double>(total));
  }
  (void)sink;
  if (shown > 0)
    std::fprintf(stderr, "\r%40s\r", "");
}

Status loadCheckpoint(const Options &options, Engine &engine) {
  StatusOr<Checkpoint> checkpoint = Checkpoint::open(options.model);
  if (!checkpoint.ok())
    return checkpoint.status();
  StatusOr<Weights> weights = bindWeights(engine.config, *checkpoint);
  if (!weights.ok())
    return weights.status();
  note("unknown tensor", weights->unknownTensors);
  engine.weights = std::move(*weights);
  engine.checkpoint = std::move(*checkpoint);
  return Status::success();
}

StatusOr<PackReader> openPack(const Options &options, bool isGpu) {
  if (!options.pack.empty())
    return PackReader::open(options.pack);
  return PackReader::fromBytes(carriedPack(isGpu),
                               "the pack that kdac-run carries");
}

Status prepareHost(const Options &options, const SessionLimits &limits,
                   Engine &engine) {
  StatusOr<PackReader> pack = openPack(options, false);
  if (!pack.ok())
    return pack.status();
  StatusOr<Session> session = Session::create(engine.config, limits);
  if (!session.ok())
    return session.status();
  engine.session = std::make_unique<Session>(std::move(*session));
  StatusOr<std::unique_ptr<Ops>> ops = makeHostOps(
      engine.config, *pack, {options.chunk, limits.slots, options.threads});
  if (!ops.ok())
    return ops.status();
  engine.ops = std::move(*ops);
  if (engine.checkpoint)
    warm(*engine.checkpoint);
  return Status::success();
}

/// Refuses before anything is allocated where the GPU is too small.
Status checkRoom(const Engine &engine, const SessionLimits &limits,
                 int64_t scratch) {
  StatusOr<int64_t> session = Session::plannedBytes(engine.config, limits);
  if (!session.ok())
    return session.status();
  StatusOr<int64_t> room = gpuMemory(engine.gpu)->available();
  if (!room.ok())
    return room.status();
  int64_t weights = gpuWeightBytes(engine.weights, limits.element);
  if (weights + *session + scratch <= *room)
    return Status::success();
  return Status(
      ErrorCode::InvalidArgument,
      "weights need " + std::to_string(weights) +
          " bytes, caches and activations " + std::to_string(*session) +
          ", scratch " + std::to_string(scratch) + ", but " +
          gpuMemory(engine.gpu)->place() + " has " + std::to_string(*room) +
          " free; take a shorter context, fewer slots or a smaller "
          "chunk");
}

Status prepareGpu(const Options &options, const SessionLimits &limits,
                  Engine &engine) {
  StatusOr<PackReader> pack = openPack(options, true);
  if (!pack.ok())
    return pack.status();
  Status blas =
      options.isWithoutBlas ? Status::success() : findBlas(*engine.gpu);
  if (!blas.ok() && limits.element == Element::BF16)
    std::fprintf(stderr,
                 "kdac-run: note: no cuBLASLt, prompts take kdac's own "
                 "products: %s\n",
                 blas.message().c_str());
  GpuLimits most = {options.chunk, limits.slots, limits.contextTokens,
                    limits.element};
  most.usesBlas = !options.isWithoutBlas;
  StatusOr<int64_t> scratch =
      gpuScratchBytes(engine.gpu, engine.config, *pack, most);
  if (!scratch.ok())
    return scratch.status();
  if (Status s = checkRoom(engine, limits, *scratch); !s.ok())
    return s;
  if (engine.checkpoint)
    warm(*engine.checkpoint);
  StatusOr<Weights> weights = gpuWeights(
      engine.gpu, engine.weights, limits.element, options.hasRandomWeights);
  if (!weights.ok())
    return weights.status();
  engine.weights = std::move(*weights);
  StatusOr<Session> session =
      Session::create(engine.config, limits, gpuMemory(engine.gpu));
  if (!session.ok())
    return session.status();
  engine.session = std::make_unique<Session>(std::move(*session));
  StatusOr<std::unique_ptr<Ops>> ops =
      makeGpuOps(engine.gpu, engine.config, *pack, most);
  if (!ops.ok())
    return ops.status();
  engine.ops = std::move(*ops);
  return Status::success();
}

} // namespace

Status checkModel(const Options &options) {
  const std::string &model = options.model;
  struct stat info;
  bool isThere = ::stat(model.c_str(), &info) == 0;
  if (model.empty() || (isThere && S_ISDIR(info.st_mode)))
    return Status::success();
  std::string what = isThere ? " is a file" : " does not exist";
  std::string use = "; a model is the folder with its config.json and weights";
  if (!isThere && presetConfig(model).ok()) {
    what = " is a shape without weights";
    use = "; use it with --plan, or with --random-weights --config=" + model;
  }
  return Status(ErrorCode::InvalidArgument, model + what + use);
}

Status loadModel(const Options &options, bool isAllMla, Engine &engine) {
  StatusOr<int> number = gpuOf(options);
  if (!number.ok())
    return number.status();
  if (*number >= 0) {
    StatusOr<std::shared_ptr<Gpu>> gpu = openGpu(*number);
    if (!gpu.ok())
      return gpu.status();
    engine.gpu = std::move(*gpu);
  }
  StatusOr<ModelConfig> config = presetConfig(options.config);
  if (!config.ok())
    config = readConfig(options.config.empty() ? options.model + "/config.json"
                                               : options.config);
  if (!config.ok())
    return config.status();
  engine.config = std::move(*config);
  if (isAllMla)
    std::fill(engine.config.mixers.begin(), engine.config.mixers.end(),
              Mixer::Mla);
  note("unknown config key", engine.config.unknownKeys);
  if (!options.hasRandomWeights)
    return loadCheckpoint(options, engine);
  constexpr uint64_t seed = 1;
  StatusOr<Weights> weights = engine.gpu ? outlineWeights(engine.config, seed)
                                         : randomWeights(engine.config, seed);
  if (!weights.ok())
    return weights.status();
  engine.weights = std::move(*weights);
  return Status::success();
}

Status prepare(const Options &options, int64_t context, int64_t slots,
               Engine &engine) {
  SessionLimits limits = {slots, context, 0, options.chunk, elementOf(options)};
  return engine.gpu ? prepareGpu(options, limits, engine)
                    : prepareHost(options, limits, engine);
}

void noteContext(const Engine &engine) {
  int64_t context = engine.session->limits().contextTokens;
  int64_t most = engine.config.maxTokens;
  if (most > 0 && context > most)
    std::fprintf(stderr,
                 "kdac-run: note: a context of %lld tokens is longer than the "
                 "%lld that the model was made for\n",
                 (long long)context, (long long)most);
}

std::vector<int64_t> stopsOf(const Options &options, const Engine &engine,
                             const Tokenizer *tokenizer) {
  if (options.ignoresStop)
    return {};
  std::vector<int64_t> stops = engine.config.stopTokens;
  for (const char *name : {"[EOS]", "<|im_end|>"})
    if (int32_t token = tokenizer ? tokenizer->special(name) : -1; token >= 0)
      stops.push_back(token);
  return stops;
}

} // namespace kdac::runtool
