// The only file of kdac-run compiled with exceptions: CLI11 reports through
// them. None leaves it.
#include "Options.h"
#include "../Parse.h"

#include <charconv>

namespace kdac::runtool {

namespace {

constexpr char overview[] =
    "kdac-run executes Kimi Linear and Kimi K3 text models from their Hugging "
    "Face folders, and plans the memory of their caches.";

constexpr char examples[] = R"(examples:
  kdac-run --plan --model=kimi-k3 --context=1048576 --batch=1
      what the caches take, against the same model with MLA only
  kdac-run MODEL --prompt="The French Revolution" --max-tokens=64
  kdac-run MODEL --chat
  kdac-run MODEL --tokens=ids.txt --json
      token ids in, token ids out: no tokenizer needed
  kdac-run MODEL --batch=prompts.jsonl --slots=8
      a line each: a JSON string, an array of ids, or {"prompt": ...}
  kdac-run MODEL --device=cuda --prompt=TEXT
      on the first GPU, in bf16
  kdac-run --random-weights --config=config.json --tokens=ids.txt
      any shape without a checkpoint, for speed
Exit code: 0 good, 1 something failed, 2 refused; one sentence says why.)";

class Grammar {
public:
  explicit Grammar(Options &options) : app(overview, "kdac-run"), o(options) {
    app.footer(examples);
    addModel();
    addWork();
    addSampling();
  }

  CLI::App app;

private:
  void addModel() {
    app.add_option("model,--model", o.model,
                   "a model folder; with --plan also kimi-linear-48b, kimi-k3 "
                   "or a config.json");
    CLI::Option *random =
        app.add_flag("--random-weights", o.hasRandomWeights,
                     "weights of the right shapes, for speed tests");
    app.add_option(
           "--config", o.config,
           "of --random-weights: a config.json, kimi-linear-48b or kimi-k3")
        ->needs(random);
    app.add_option("--pack", o.pack,
                   "kernels of this pack instead of kdac-run's own");
    app.add_option("--device", o.device,
                   "where to run: host, cuda or cuda:N for the Nth GPU")
        ->capture_default_str();
    app.add_option("--dtype", o.dtype,
                   "of activations and caches: f32, or on a GPU bf16; default "
                   "f32 on the host, bf16 on a GPU");
    app.add_flag("--no-cublas", o.isWithoutBlas,
                 "on a GPU: kdac's own products of many rows, not cuBLASLt's");
    app.add_option("--threads", o.threads, "0: one per core")
        ->check(CLI::Range(0, 1024));
  }

  void addWork() {
    CLI::Option_group &work =
        *app.add_option_group("Work", "one of these, or --batch");
    work.add_flag("--plan", o.isPlan,
                  "print what the caches take at --context and --batch");
    work.add_option("--prompt", o.prompt, "continue this text");
    work.add_option("--tokens", o.tokens,
                    "continue the token ids of this file; - is stdin");
    work.add_flag("--chat", o.isChat,
                  "talk: a line of stdin is a message of yours");
    work.require_option(0, 1);
    app.add_option("--batch", o.batch,
                   "with --plan: requests; else a file of prompts, one a line; "
                   "- is stdin");
    app.add_option("--system", o.system, "system message of --chat");
    app.add_option("--restore", o.restore,
                   "go on from the session that --save wrote");
    app.add_option("--save", o.save,
                   "write the session behind prompt and answer");
    app.add_option("--max-tokens", o.maxTokens, "new tokens of a request")
        ->capture_default_str()
        ->check(CLI::Range(int64_t(0), int64_t(1) << 31));
    app.add_option(
           "--context", o.context,
           "longest sequence; default: what the requests need, with --plan "
           "what the model was made for")
        ->check(CLI::Range(int64_t(1), int64_t(1) << 40));
    app.add_option("--slots", o.slots, "sequences at a time; default: up to 8")
        ->check(CLI::Range(int64_t(0), int64_t(1) << 16));
    app.add_option("--chunk", o.chunk, "tokens of prompts in one pass")
        ->capture_default_str()
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
    app.add_flag("--ignore-stop", o.ignoresStop,
                 "go on behind stop tokens, for speed tests");
    work.add_option("--time-decode", o.timeDecode,
                    "with --random-weights: times of a token of --slots "
                    "sequences at these contexts, beside the same model with "
                    "MLA layers only")
        ->delimiter(',')
        ->check(CLI::Range(int64_t(1), int64_t(1) << 30));
    app.add_option("--time-prefill", o.timePrefill,
                   "with --random-weights: times of prompts of these lengths")
        ->delimiter(',')
        ->check(CLI::Range(int64_t(1), int64_t(1) << 30));
    app.add_flag("--json", o.isJson, "one JSON object on stdout");
  }

  void addSampling() {
    app.add_option("--temperature", o.sampling.temperature, "0: greedy")
        ->capture_default_str();
    app.add_option("--top-k", o.sampling.topK, "0: all")->capture_default_str();
    app.add_option("--top-p", o.sampling.topP, "1: all")->capture_default_str();
    app.add_option("--seed", o.sampling.seed, "of sampling")
        ->capture_default_str()
        ->check(CLI::Validator(
            [](const std::string &text) {
              uint64_t seed = 0;
              auto [end, error] =
                  std::from_chars(text.data(), text.data() + text.size(), seed);
              bool isGood = error == std::errc() && *end == 0;
              return isGood ? "" : text + " should be from 0 to 2^64 - 1";
            },
            ""));
  }

  Options &o;
};

} // namespace

StatusOr<int> gpuOf(const Options &options) {
  constexpr std::string_view cuda = "cuda";
  const std::string &device = options.device;
  Status unknown(ErrorCode::InvalidArgument,
                 "device '" + device +
                     "' is not known; use host, cuda or "
                     "cuda:N");
  bool isHost = device == "host";
  int number = -1;
  if (!isHost) {
    std::string_view rest(device);
    if (rest.substr(0, cuda.size()) != cuda)
      return unknown;
    rest.remove_prefix(cuda.size());
    number = 0;
    if (!rest.empty()) {
      auto [end, error] =
          std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
      if (rest[0] != ':' || error != std::errc() ||
          end != rest.data() + rest.size() || number < 0)
        return unknown;
    }
  }
  const std::string &dtype = options.dtype;
  if (!dtype.empty() && dtype != "f32" && (isHost || dtype != "bf16"))
    return Status(ErrorCode::InvalidArgument,
                  "dtype '" + dtype + "' is not supported on " +
                      (isHost ? "the host; use f32 (weights stay as stored)"
                              : "a GPU; use bf16 or f32"));
  return number;
}

Status checkOptions(const Options &o) {
  bool isTiming = !o.timeDecode.empty() || !o.timePrefill.empty();
  bool isText = o.prompt || !o.tokens.empty() || o.isChat;
  bool isSampling =
      o.sampling.topK != 0 || o.sampling.topP != 1 || o.sampling.seed != 0;
  const std::pair<bool, const char *> rules[] = {
      {isText && !o.batch.empty(),
       "--batch is work of its own; pass it without --prompt, --tokens and "
       "--chat"},
      {isTiming && (isText || o.isPlan || !o.batch.empty()),
       "--time-decode and --time-prefill are work of their own; pass them "
       "without --plan, --prompt, --tokens, --chat and --batch"},
      {isTiming && !o.hasRandomWeights,
       "--time-decode and --time-prefill need --random-weights"},
      {o.isChat && (o.isJson || !o.save.empty() || !o.restore.empty()),
       "--chat has no --json, --save and --restore"},
      {o.isChat && o.slots > 1, "--chat is one sequence, in one slot"},
      {!o.isChat && !o.system.empty(), "--system needs --chat"},
      {isSampling && o.sampling.temperature == 0,
       "--top-k, --top-p and --seed need a --temperature above 0, without "
       "which the best token is taken"}};
  for (const auto &[isBroken, sentence] : rules)
    if (isBroken)
      return Status(ErrorCode::InvalidArgument, sentence);
  return model::checkSampler(o.sampling);
}

model::Element elementOf(const Options &options) {
  bool isWide = options.device == "host" || options.dtype == "f32";
  return isWide ? model::Element::F32 : model::Element::BF16;
}

Options parseOptions(int argc, char **argv, std::optional<int> &exitCode) {
  Options options;
  Grammar grammar(options);
  exitCode = parseCommandLine(grammar.app, "kdac-run", argc, argv, [] {});
  return options;
}

} // namespace kdac::runtool
