#include "Commands.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace kdac::runtool {

using namespace model;
using nlohmann::json;

namespace {

double perSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

/// Text or ids as they come; only one request can be shown that way.
class Streamer {
public:
  explicit Streamer(const Tokenizer *tokenizer) {
    if (tokenizer)
      stream.emplace(*tokenizer);
  }
  void add(int32_t token) {
    if (stream)
      std::fputs(stream->add(token).c_str(), stdout);
    else
      std::printf("%s%d", isFirst ? "" : " ", token);
    isFirst = false;
    std::fflush(stdout);
  }
  void end() {
    std::printf("%s\n", stream ? stream->rest().c_str() : "");
    std::fflush(stdout);
  }

private:
  std::optional<TextStream> stream;
  bool isFirst = true;
};

std::string textOf(const Tokenizer &tokenizer,
                   const std::vector<int32_t> &tokens) {
  TextStream stream(tokenizer);
  std::string text;
  for (int32_t token : tokens)
    text += stream.add(token);
  return text + stream.rest();
}

json toJson(const GenerateRequest &request, const GenerateResult &result,
            const Tokenizer *tokenizer) {
  json one = {{"prompt_tokens", request.prompt.size()},
              {"tokens", result.tokens},
              {"time_to_first_token_s", result.firstTokenSeconds},
              {"seconds", result.seconds}};
  if (result.stopToken >= 0)
    one["stop_token"] = result.stopToken;
  if (tokenizer)
    one["text"] = textOf(*tokenizer, result.tokens);
  return one;
}

void printJson(const std::vector<GenerateRequest> &requests,
               const std::vector<GenerateResult> &results,
               const GenerateStats &stats, const Tokenizer *tokenizer) {
  json all = json::array();
  for (size_t i = 0; i < results.size(); ++i)
    all.push_back(toJson(requests[i], results[i], tokenizer));
  json root = {
      {"requests", all},
      {"prompt_tokens", stats.promptTokens},
      {"new_tokens", stats.newTokens},
      {"prefill_tokens_per_s",
       perSecond(stats.promptTokens, stats.prefillSeconds)},
      {"decode_tokens_per_s",
       perSecond(stats.newTokens - static_cast<int64_t>(results.size()),
                 stats.decodeSeconds)}};
  std::printf(
      "%s\n",
      root.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
}

void printBatch(const std::vector<GenerateResult> &results,
                const Tokenizer *tokenizer) {
  for (size_t i = 0; i < results.size(); ++i) {
    std::printf("[%zu] ", i + 1);
    Streamer streamer(tokenizer);
    for (int32_t token : results[i].tokens)
      streamer.add(token);
    streamer.end();
  }
}

/// Before anything is computed, what would keep the session from being written
/// afterwards.
Status checkWritable(const std::string &path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "."
                       : slash == 0               ? "/"
                                                  : path.substr(0, slash);
  bool isThere = ::access(path.c_str(), F_OK) == 0;
  if (::access((isThere ? path : folder).c_str(), W_OK) != 0)
    return Status(ErrorCode::Io, path + ": " + std::strerror(errno));
  return Status::success();
}

/// The slot of --restore, and what --save wants kept.
Status attach(const Options &options, Engine &engine,
              std::vector<GenerateRequest> &requests) {
  requests[0].keepsSlot = !options.save.empty();
  if (!options.save.empty())
    if (Status s = checkWritable(options.save); !s.ok())
      return s;
  if (options.restore.empty())
    return Status::success();
  StatusOr<int32_t> slot = engine.session->restore(options.restore);
  if (!slot.ok())
    return slot.status();
  requests[0].slot = *slot;
  return Status::success();
}

/// Of the longest sequence; `past` tokens are restored.
int64_t contextOf(const Options &options, int64_t past,
                  const std::vector<GenerateRequest> &requests) {
  if (options.context > 0)
    return options.context;
  int64_t longest = 1;
  for (const GenerateRequest &r : requests)
    longest =
        std::max(longest, static_cast<int64_t>(r.prompt.size()) + r.newTokens);
  return past + longest;
}

/// The last token was chosen, but is not in the caches, where a session that
/// goes on needs it.
Status feedLast(const GenerateResult &result, Engine &engine) {
  if (result.stopToken >= 0 || result.tokens.empty())
    return Status::success();
  GenerateRequest request;
  request.prompt = {result.tokens.back()};
  request.slot = result.slot;
  request.keepsSlot = true;
  return generate(engine.config, engine.weights, *engine.ops, *engine.session,
                  {request}, {})
      .status();
}

/// Ends of the tokenizer count for token ids too, where there is one.
std::optional<Tokenizer> tokenizerOf(const Options &options) {
  StatusOr<Tokenizer> opened = Tokenizer::open(options.model);
  return opened.ok() ? std::optional<Tokenizer>(std::move(*opened))
                     : std::nullopt;
}

} // namespace

void printSpeed(const std::vector<GenerateResult> &results,
                const GenerateStats &stats, const Engine &engine) {
  double first = 0;
  for (const GenerateResult &result : results)
    first = std::max(first, result.firstTokenSeconds);
  int64_t decoded = stats.newTokens - static_cast<int64_t>(results.size());
  std::fprintf(
      stderr,
      "kdac-run: %lld prompt tokens at %.1f/s, first token after %.3f s; %lld "
      "tokens at %.1f/s; a token reads %.1f MB of weights\n",
      (long long)stats.promptTokens,
      perSecond(stats.promptTokens, stats.prefillSeconds), first,
      (long long)stats.newTokens,
      perSecond(std::max<int64_t>(decoded, 0), stats.decodeSeconds),
      static_cast<double>(activeBytes(engine.config, engine.weights)) / 1e6);
}

int runGenerate(const Options &options) {
  std::optional<Tokenizer> tokenizer;
  StatusOr<std::vector<GenerateRequest>> requests =
      readRequests(options, tokenizer);
  if (!requests.ok())
    return refuse(requests.status().message());
  bool isSingle = requests->size() == 1;
  if ((!options.save.empty() || !options.restore.empty()) && !isSingle)
    return refuse("--save and --restore need exactly one request");
  StatusOr<int64_t> past = int64_t(0);
  if (!options.restore.empty())
    past = Session::savedTokens(options.restore);
  if (!past.ok())
    return fail(past.status());
  if (requests->empty())
    return refuse(options.batch + " has no prompts");
  Engine engine;
  if (Status s = loadModel(options, false, engine); !s.ok())
    return fail(s);
  if (Status s = checkRequests(engine.config, *requests); !s.ok())
    return refuse(s.message());
  auto count = static_cast<int64_t>(requests->size());
  int64_t slots =
      options.slots > 0 ? options.slots : std::min<int64_t>(count, 8);
  if (Status s =
          prepare(options, contextOf(options, *past, *requests), slots, engine);
      !s.ok())
    return fail(s);
  if (Status s = attach(options, engine, *requests); !s.ok())
    return fail(s);
  noteContext(engine);
  const Tokenizer *words = tokenizer ? &*tokenizer : nullptr;
  std::optional<Tokenizer> ends = words ? std::nullopt : tokenizerOf(options);
  bool streams = isSingle && !options.isJson;
  Streamer streamer(words);
  OnToken show = [&](size_t, int32_t token) { streamer.add(token); };
  GenerateStats stats;
  StatusOr<std::vector<GenerateResult>> results =
      generate(engine.config, engine.weights, *engine.ops, *engine.session,
               *requests, stopsOf(options, engine, ends ? &*ends : words),
               streams ? show : nullptr, &stats);
  if (!results.ok())
    return fail(results.status());
  if (streams)
    streamer.end();
  else if (options.isJson)
    printJson(*requests, *results, stats, words);
  else
    printBatch(*results, words);
  printSpeed(*results, stats, engine);
  if (options.save.empty())
    return 0;
  const GenerateResult &last = results->front();
  Status saved = feedLast(last, engine);
  if (saved.ok())
    saved = engine.session->save(last.slot, options.save);
  return saved.ok() ? 0 : fail(saved);
}

} // namespace kdac::runtool
