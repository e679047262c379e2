#include "Commands.h"
#include "kdac/Model/HostOps.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace kdac::runtool {

using namespace model;

namespace {

/// Names on one line of stderr, the first few of them.
void note(const char *what, const std::vector<std::string> &names) {
  constexpr size_t shown = 4;
  if (names.empty())
    return;
  std::string text;
  for (size_t i = 0; i < names.size() && i < shown; ++i)
    text += (i ? ", " : "") + names[i];
  std::fprintf(stderr, "kdac-run: note: %zu %s ignored: %s%s\n", names.size(),
               what, text.c_str(), names.size() > shown ? ", ..." : "");
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
  note("unknown tensors", weights->unknownTensors);
  warm(*checkpoint);
  engine.weights = std::move(*weights);
  return Status::success();
}

StatusOr<PackReader> openPack(const Options &options) {
  if (!options.pack.empty())
    return PackReader::open(options.pack);
  return PackReader::fromBytes(carriedPack(), "the pack that kdac-run carries");
}

} // namespace

Status loadModel(const Options &options, Engine &engine) {
  StatusOr<ModelConfig> config = readConfig(
      options.config.empty() ? options.model + "/config.json" : options.config);
  if (!config.ok())
    return config.status();
  engine.config = std::move(*config);
  note("unknown config keys", engine.config.unknownKeys);
  if (!options.hasRandomWeights)
    return loadCheckpoint(options, engine);
  StatusOr<Weights> weights = randomWeights(engine.config, 1);
  if (!weights.ok())
    return weights.status();
  engine.weights = std::move(*weights);
  return Status::success();
}

Status prepare(const Options &options, int64_t context, int64_t slots,
               Engine &engine) {
  StatusOr<PackReader> pack = openPack(options);
  if (!pack.ok())
    return pack.status();
  StatusOr<Session> session =
      Session::create(engine.config, {slots, context, 0, options.chunk});
  if (!session.ok())
    return session.status();
  engine.session = std::make_unique<Session>(std::move(*session));
  StatusOr<std::unique_ptr<Ops>> ops = makeHostOps(
      engine.config, *pack, {options.chunk, slots, options.threads});
  if (!ops.ok())
    return ops.status();
  engine.ops = std::move(*ops);
  return Status::success();
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
