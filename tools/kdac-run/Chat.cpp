#include "Commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <unistd.h>

namespace kdac::runtool {

using namespace model;

namespace {

/// A conversation in one slot: each turn feeds only what is new.
class Conversation {
public:
  Conversation(const Options &options, Engine &engine,
               const Tokenizer &tokenizer)
      : options(options), engine(engine), tokenizer(tokenizer) {}

  Status turn(const std::string &words) {
    std::vector<Message> messages;
    if (slot < 0 && !options.system.empty())
      messages.push_back({"system", options.system});
    messages.push_back({"user", words});
    StatusOr<std::vector<int32_t>> tokens = tokenizer.encodeChat(messages);
    if (!tokens.ok())
      return tokens.status();
    GenerateRequest request;
    request.prompt = unfed;
    request.prompt.insert(request.prompt.end(), tokens->begin(), tokens->end());
    StatusOr<int64_t> room = roomBehind(request.prompt.size());
    if (!room.ok())
      return room.status();
    request.newTokens = std::min(options.maxTokens, *room);
    request.sampling = options.sampling;
    request.slot = slot;
    request.keepsSlot = true;
    return answer(request);
  }

private:
  /// Tokens that still fit behind a prompt of so many.
  StatusOr<int64_t> roomBehind(size_t prompt) const {
    int64_t past = slot < 0 ? 0 : engine.session->length(slot);
    int64_t context = engine.session->limits().contextTokens;
    int64_t length = past + static_cast<int64_t>(prompt);
    if (length < context)
      return context - length;
    return Status(ErrorCode::InvalidArgument,
                  "the conversation has " + std::to_string(length) +
                      " tokens, more than fit its context of " +
                      std::to_string(context) + "; take a larger --context");
  }

  Status answer(const GenerateRequest &request) {
    TextStream stream(tokenizer);
    OnToken show = [&](size_t, int32_t token) {
      std::fputs(stream.add(token).c_str(), stdout);
      std::fflush(stdout);
    };
    GenerateStats stats;
    StatusOr<std::vector<GenerateResult>> results =
        generate(engine.config, engine.weights, *engine.ops, *engine.session,
                 {request}, stopsOf(options, engine, &tokenizer), show, &stats);
    std::printf("%s\n", stream.rest().c_str());
    std::fflush(stdout);
    if (!results.ok())
      return results.status();
    printSpeed(*results, stats, engine);
    const GenerateResult &result = results->front();
    slot = result.slot;
    // The last token was chosen, but not fed; the message ends in any case.
    unfed.clear();
    if (result.stopToken < 0 && !result.tokens.empty())
      unfed.push_back(result.tokens.back());
    unfed.push_back(tokenizer.special("<|im_end|>"));
    return Status::success();
  }

  const Options &options;
  Engine &engine;
  const Tokenizer &tokenizer;
  int32_t slot = -1;
  std::vector<int32_t> unfed; ///< of the last turn
};

} // namespace

/// A line of stdin, asked for where a person types it.
static bool readLine(std::string &line) {
  if (::isatty(0))
    std::fputs("> ", stderr);
  return bool(std::getline(std::cin, line));
}

int runChat(const Options &options) {
  if (options.model.empty())
    return refuse("--chat needs a model folder with a tokenizer");
  StatusOr<Tokenizer> tokenizer = Tokenizer::open(options.model);
  if (!tokenizer.ok())
    return refuse(tokenizer.status().message());
  Engine engine;
  if (Status s = loadModel(options, false, engine); !s.ok())
    return fail(s);
  constexpr int64_t usual = 8192;
  int64_t context = options.context;
  if (context == 0)
    context = engine.config.maxTokens > 0
                  ? std::min(engine.config.maxTokens, usual)
                  : usual;
  if (Status s = prepare(options, context, 1, engine); !s.ok())
    return fail(s);
  noteContext(engine);
  Conversation conversation(options, engine, *tokenizer);
  for (std::string line; readLine(line);)
    if (!line.empty())
      if (Status s = conversation.turn(line); !s.ok())
        return fail(s);
  return 0;
}

} // namespace kdac::runtool
