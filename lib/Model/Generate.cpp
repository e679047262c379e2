#include "kdac/Model/Generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace kdac::model {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A request that has a slot.
struct Running {
  size_t request;
  int32_t slot;
  int64_t fed = 0; ///< tokens of the prompt in the caches
  Sampler sampler;
};

class Scheduler {
public:
  Scheduler(const ModelConfig &config, const Weights &weights, Ops &ops,
            Session &session, const std::vector<GenerateRequest> &requests,
            const std::vector<int64_t> &stops, const OnToken &onToken,
            GenerateStats &stats)
      : config(config), weights(weights), ops(ops), session(session),
        requests(requests), stops(stops), onToken(onToken), stats(stats),
        results(requests.size()) {}

  Status run();
  /// Gives back the slots that an unfinished run took.
  void abandon();
  std::vector<GenerateResult> take() { return std::move(results); }

private:
  Status check(size_t i) const;
  /// Gives slots to waiting requests while there are any.
  Status admit();
  /// One call on pieces of prompts; one on a token of every running sequence.
  Status prefill();
  Status decode();
  Status call(const Batch &batch, const std::vector<size_t> &wanting);
  /// The next token of a sequence from its row of the call's logits.
  StatusOr<int32_t> choose(size_t index, Rows logits, int64_t row);
  Status accept(size_t index, Rows logits, int64_t row);
  void finishEnded();
  bool isFed(const Running &r) const { return r.fed == promptSize(r.request); }
  int64_t promptSize(size_t i) const {
    return static_cast<int64_t>(requests[i].prompt.size());
  }

  const ModelConfig &config;
  const Weights &weights;
  Ops &ops;
  Session &session;
  const std::vector<GenerateRequest> &requests;
  const std::vector<int64_t> &stops;
  const OnToken &onToken;
  GenerateStats &stats;
  std::vector<GenerateResult> results;
  std::vector<Running> running;
  std::vector<bool> isEnded = std::vector<bool>(requests.size(), false);
  size_t next = 0; ///< the first request without a slot
  Clock::time_point start = Clock::now();
  std::vector<float> line; ///< a row of logits, for sampling
};

Status refuseRequest(size_t i, const std::string &message) {
  return Status(ErrorCode::InvalidArgument,
                "request " + std::to_string(i + 1) + " " + message);
}

Status Scheduler::check(size_t i) const {
  const GenerateRequest &r = requests[i];
  if (r.slot >= 0 && !session.isOpen(r.slot))
    return refuseRequest(i, "continues slot " + std::to_string(r.slot) +
                                ", which is not open");
  int64_t past = r.slot >= 0 ? session.length(r.slot) : 0;
  int64_t total = past + promptSize(i) + r.newTokens;
  if (total > session.limits().contextTokens)
    return refuseRequest(i, "needs " + std::to_string(total) +
                                " tokens, but the session's context is " +
                                std::to_string(session.limits().contextTokens));
  return Status::success();
}

/// All pages are reserved at the start, so that no sequence is stuck half-way.
Status Scheduler::admit() {
  for (; next < requests.size(); ++next) {
    const GenerateRequest &r = requests[next];
    StatusOr<int32_t> slot = r.slot;
    if (r.slot < 0)
      slot = session.open();
    Status status = slot.status();
    if (slot.ok()) {
      status = session.reserve(*slot, promptSize(next) + r.newTokens);
      if (!status.ok() && r.slot < 0)
        session.close(*slot);
    }
    // What runs now will give slots and pages back.
    if (!status.ok())
      return running.empty()
                 ? status.with("request " + std::to_string(next + 1))
                 : Status::success();
    running.push_back({next, *slot, 0, Sampler(r.sampling)});
  }
  return Status::success();
}

StatusOr<int32_t> Scheduler::choose(size_t index, Rows logits, int64_t row) {
  Running &r = running[index];
  Memory &memory = session.memory();
  bool isGreedy = requests[r.request].sampling.temperature == 0;
  int32_t best = 0;
  float logit = 0;
  Status status;
  if (isGreedy) {
    status = memory.read(&best, session.activations().best + row, sizeof best);
    // Of nothing but NaN the first counts as best; others need no look.
    if (status.ok() && best == 0)
      status = memory.read(&logit, logits.row(row), sizeof logit);
  } else {
    line.resize(static_cast<size_t>(logits.width));
    status = memory.read(line.data(), logits.row(row), logits.width * 4);
    if (status.ok()) {
      best = r.sampler.pick(line.data(), logits.width);
      logit = line[static_cast<size_t>(best)];
    }
  }
  if (!status.ok())
    return status;
  if (std::isnan(logit))
    return refuseRequest(r.request,
                         "has logits that are not numbers; weights or caches "
                         "hold NaN or infinities");
  return best;
}

Status Scheduler::accept(size_t index, Rows logits, int64_t row) {
  Running &r = running[index];
  GenerateResult &result = results[r.request];
  const GenerateRequest &request = requests[r.request];
  bool isDone = request.newTokens == 0;
  if (!isDone) {
    StatusOr<int32_t> chosen = choose(index, logits, row);
    if (!chosen.ok())
      return chosen.status();
    int32_t token = *chosen;
    if (result.tokens.empty())
      result.firstTokenSeconds = secondsSince(start);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      result.stopToken = token;
      isDone = true;
    } else {
      result.tokens.push_back(token);
      ++stats.newTokens;
      if (onToken)
        onToken(r.request, token);
      isDone = static_cast<int64_t>(result.tokens.size()) == request.newTokens;
    }
  }
  isEnded[r.request] = isDone;
  return Status::success();
}

Status Scheduler::call(const Batch &batch, const std::vector<size_t> &wanting) {
  StatusOr<Rows> logits = forward(config, weights, ops, session, batch);
  if (!logits.ok())
    return logits.status();
  ++stats.forwardCalls;
  for (size_t i = 0; i < wanting.size(); ++i)
    if (Status s = accept(wanting[i], *logits, static_cast<int64_t>(i));
        !s.ok())
      return s;
  return Status::success();
}

Status Scheduler::prefill() {
  Batch batch;
  std::vector<size_t> wanting;
  int64_t room = session.limits().batchTokens;
  for (size_t i = 0; i < running.size() && room > 0; ++i) {
    Running &r = running[i];
    int64_t count = std::min(room, promptSize(r.request) - r.fed);
    if (count == 0)
      continue;
    const int32_t *from = requests[r.request].prompt.data() + r.fed;
    r.fed += count;
    room -= count;
    batch.add(r.slot, from, count, isFed(r));
    if (isFed(r))
      wanting.push_back(i);
  }
  if (batch.pieces.empty())
    return Status::success();
  stats.promptTokens += static_cast<int64_t>(batch.tokens.size());
  Clock::time_point begin = Clock::now();
  Status status = call(batch, wanting);
  stats.prefillSeconds += secondsSince(begin);
  return status;
}

/// In turns of as many sequences as a call takes.
Status Scheduler::decode() {
  auto most = static_cast<size_t>(session.limits().batchTokens);
  Clock::time_point begin = Clock::now();
  std::vector<size_t> ready;
  for (size_t i = 0; i < running.size(); ++i)
    if (isFed(running[i]) && !isEnded[running[i].request])
      ready.push_back(i);
  for (size_t at = 0; at < ready.size(); at += most) {
    std::vector<size_t> some(
        ready.begin() + static_cast<long>(at),
        ready.begin() + static_cast<long>(std::min(at + most, ready.size())));
    Batch batch;
    for (size_t i : some)
      batch.add(running[i].slot, &results[running[i].request].tokens.back(), 1);
    if (Status s = call(batch, some); !s.ok())
      return s;
  }
  stats.decodeSeconds += secondsSince(begin);
  return Status::success();
}

void Scheduler::finishEnded() {
  auto isOver = [&](const Running &r) {
    if (!isEnded[r.request])
      return false;
    results[r.request].seconds = secondsSince(start);
    results[r.request].slot = requests[r.request].keepsSlot ? r.slot : -1;
    if (!requests[r.request].keepsSlot)
      session.close(r.slot);
    return true;
  };
  running.erase(std::remove_if(running.begin(), running.end(), isOver),
                running.end());
}

Status Scheduler::run() {
  if (Status s = checkRequests(config, requests); !s.ok())
    return s;
  for (size_t i = 0; i < requests.size(); ++i)
    if (Status s = check(i); !s.ok())
      return s;
  while (next < requests.size() || !running.empty()) {
    if (Status s = admit(); !s.ok())
      return s;
    if (Status s = prefill(); !s.ok())
      return s;
    finishEnded();
    if (Status s = decode(); !s.ok())
      return s;
    finishEnded();
  }
  return Status::success();
}

void Scheduler::abandon() {
  for (const Running &r : running)
    if (requests[r.request].slot < 0)
      session.close(r.slot);
}

} // namespace

Status checkRequests(const ModelConfig &config,
                     const std::vector<GenerateRequest> &requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerateRequest &r = requests[i];
    if (r.prompt.empty())
      return refuseRequest(i, "has an empty prompt");
    if (r.newTokens < 0)
      return refuseRequest(i, "wants " + std::to_string(r.newTokens) +
                                  " new tokens");
    for (int32_t token : r.prompt)
      if (token < 0 || token >= config.vocab)
        return refuseRequest(i, "has token " + std::to_string(token) +
                                    ", which is not in the vocabulary of " +
                                    std::to_string(config.vocab));
    if (Status s = checkSampler(r.sampling); !s.ok())
      return s.with("request " + std::to_string(i + 1));
  }
  return Status::success();
}

StatusOr<std::vector<GenerateResult>>
generate(const ModelConfig &config, const Weights &weights, Ops &ops,
         Session &session, const std::vector<GenerateRequest> &requests,
         const std::vector<int64_t> &stops, const OnToken &onToken,
         GenerateStats *stats) {
  GenerateStats local;
  Scheduler scheduler(config, weights, ops, session, requests, stops, onToken,
                      stats ? *stats : local);
  if (Status s = scheduler.run(); !s.ok()) {
    scheduler.abandon();
    return s;
  }
  return scheduler.take();
}

} // namespace kdac::model
