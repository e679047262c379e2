// How long tokens take at given contexts, on caches filled with noise, beside
// the same model with MLA layers only; and how long prompts take.
#include "Commands.h"

#include "kdac/Runtime/HostLaunch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace kdac::runtool {

using namespace model;
using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double medianOf(std::vector<double> values) {
  auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Bytes a second that `threads` threads (0: one per core) read and write
/// together when they copy what no cache holds.
double copyBandwidth(int threads) {
  constexpr size_t piece = size_t(16) << 20;
  HostPool pool(threads);
  size_t pieces = 8 * static_cast<size_t>(pool.threads());
  std::vector<char> from(pieces * piece, 1), to(pieces * piece, 2);
  void *args[] = {to.data(), from.data()};
  HostEntry copy = [](void **args, int64_t begin, int64_t end, void *) {
    size_t at = static_cast<size_t>(begin) * piece;
    std::memcpy(static_cast<char *>(args[0]) + at,
                static_cast<char *>(args[1]) + at,
                static_cast<size_t>(end - begin) * piece);
  };
  std::vector<double> rates;
  for (int turn = 0; turn < 5; ++turn) {
    Clock::time_point start = Clock::now();
    if (!pool.run(copy, args, static_cast<int64_t>(pieces), 0))
      return NAN;
    rates.push_back(2.0 * static_cast<double>(pieces * piece) /
                    secondsSince(start));
  }
  return medianOf(rates);
}

/// Sequences of `context` tokens that nobody has computed.
StatusOr<std::vector<int32_t>> openAt(Session &session, int64_t context,
                                      int64_t steps) {
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < session.limits().slots; ++i) {
    StatusOr<int32_t> slot = session.open();
    if (!slot.ok())
      return slot.status();
    slots.push_back(*slot);
    if (Status s = session.reserve(*slot, context + steps); !s.ok())
      return s;
    session.advance(*slot, context);
  }
  return slots;
}

/// One forward call to its end: the greedy token of the last row is here.
Status runOnce(Engine &engine, const Batch &batch) {
  StatusOr<Rows> logits = forward(engine.config, engine.weights, *engine.ops,
                                  *engine.session, batch);
  if (!logits.ok())
    return logits.status();
  int32_t best = 0;
  return engine.session->memory().read(
      &best, engine.session->activations().best, sizeof best);
}

constexpr int64_t warmUps = 4, repeats = 15;

/// The median time of a token of every slot, in seconds.
StatusOr<double> timeDecode(Engine &engine, int64_t context) {
  Session &session = *engine.session;
  StatusOr<std::vector<int32_t>> slots =
      openAt(session, context, warmUps + repeats);
  if (!slots.ok())
    return slots.status();
  Batch batch;
  constexpr int32_t token = 7;
  for (int32_t slot : *slots)
    batch.add(slot, &token, 1);
  std::vector<double> times;
  for (int64_t i = 0; i < warmUps + repeats; ++i) {
    Clock::time_point start = Clock::now();
    if (Status s = runOnce(engine, batch); !s.ok())
      return s;
    if (i >= warmUps)
      times.push_back(secondsSince(start));
  }
  for (int32_t slot : *slots)
    session.close(slot);
  return medianOf(times);
}

/// The best of three times of a prompt, after one that loads code.
StatusOr<double> timePrefill(Engine &engine, int64_t tokens, int64_t chunk) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((i * 7919 + 13) %
                                     static_cast<size_t>(engine.config.vocab));
  double best = INFINITY;
  for (int i = 0; i < 4; ++i) {
    StatusOr<int32_t> slot = engine.session->open();
    if (!slot.ok())
      return slot.status();
    Clock::time_point start = Clock::now();
    for (int64_t at = 0; at < tokens; at += chunk) {
      Batch batch;
      batch.add(*slot, prompt.data() + at, std::min(chunk, tokens - at));
      if (Status s = runOnce(engine, batch); !s.ok())
        return s;
    }
    if (i > 0)
      best = std::min(best, secondsSince(start));
    engine.session->close(*slot);
  }
  return best;
}

/// Operations that a fresh prompt cannot do without: products of all rows, the
/// head of one, causal attention, and the recurrence by chunks of 64
/// (hybrid-model.md 4.2).
double prefillFlops(const ModelConfig &c, const Weights &w, int64_t tokens) {
  auto t = static_cast<double>(tokens), d = static_cast<double>(c.kdaDim);
  double products =
      static_cast<double>(activeBytes(c, w) - w.head.bytes()) * t +
      static_cast<double>(w.head.bytes()); // two operations for two bytes
  double attention = static_cast<double>(c.count(Mixer::Mla) * c.heads *
                                         (c.queryDim() + c.valueDim)) *
                     t * t;
  double recurrence = static_cast<double>(c.count(Mixer::Kda) * c.kdaHeads) *
                      t * (6 * d * d + 3 * 64 * d + 64 * 64);
  return products + attention + recurrence;
}

/// A model ready for the longest of the contexts, its caches full of noise.
Status makeEngine(const Options &options, bool isAllMla, Engine &engine) {
  int64_t longest = 0;
  for (int64_t context : options.timeDecode)
    longest = std::max(longest, context + warmUps + repeats);
  for (int64_t tokens : options.timePrefill)
    longest = std::max(longest, tokens);
  if (Status s = loadModel(options, isAllMla, engine); !s.ok())
    return s;
  if (Status s = prepare(options, longest, std::max<int64_t>(options.slots, 1),
                         engine);
      !s.ok())
    return s;
  return engine.session->fillWithNoise();
}

/// Who makes the dense products of many rows.
const char *productsOf(const Options &options, const Engine &engine) {
  if (!engine.gpu)
    return "OpenBLAS";
  bool hasBlas = !options.isWithoutBlas && findBlas(*engine.gpu).ok();
  return hasBlas ? "cuBLASLt" : "kdac";
}

Status timeModel(const Options &options, bool isAllMla, json &out) {
  Engine engine;
  if (Status s = makeEngine(options, isAllMla, engine); !s.ok())
    return s;
  const char *name = isAllMla ? "all MLA" : "hybrid";
  double weights =
      static_cast<double>(activeBytes(engine.config, engine.weights));
  for (int64_t context : options.timeDecode) {
    StatusOr<double> seconds = timeDecode(engine, context);
    if (!seconds.ok())
      return seconds.status();
    out.push_back({{"model", name},
                   {"context", context},
                   {"batch", engine.session->limits().slots},
                   {"decode_ms", *seconds * 1e3},
                   {"active_weight_bytes", weights}});
    std::printf("%s, %lld sequences at %lld tokens: %.3f ms a token\n", name,
                (long long)engine.session->limits().slots, (long long)context,
                *seconds * 1e3);
    if (!engine.gpu) {
      double copied = copyBandwidth(options.threads);
      out.back()["copy_bytes_per_second"] = copied;
      std::printf(
          "  reading %.2f GB of active weights at %.1f GB/s, %.0f %% of "
          "a copy's %.1f GB/s\n",
          weights / 1e9, weights / *seconds / 1e9,
          100 * weights / *seconds / copied, copied / 1e9);
    }
    std::fflush(stdout);
  }
  for (int64_t tokens :
       isAllMla ? std::vector<int64_t>() : options.timePrefill) {
    StatusOr<double> seconds = timePrefill(engine, tokens, options.chunk);
    if (!seconds.ok())
      return seconds.status();
    double flops = prefillFlops(engine.config, engine.weights, tokens);
    out.push_back({{"model", name},
                   {"prompt", tokens},
                   {"chunk", options.chunk},
                   {"products", productsOf(options, engine)},
                   {"prefill_ms", *seconds * 1e3},
                   {"tflops", flops / *seconds / 1e12}});
    std::printf("%s, a prompt of %lld tokens: %.1f ms, %.0f TFLOP/s\n", name,
                (long long)tokens, *seconds * 1e3, flops / *seconds / 1e12);
    std::fflush(stdout);
  }
  return Status::success();
}

} // namespace

int runTimes(const Options &options) {
  json all = json::array();
  for (bool isAllMla : {false, true})
    if (Status s = timeModel(options, isAllMla, all); !s.ok())
      return fail(s);
  if (options.isJson)
    std::printf("%s\n", all.dump().c_str());
  return 0;
}

} // namespace kdac::runtool
