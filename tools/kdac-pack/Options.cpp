// The only file of kdac-pack compiled with exceptions: CLI11 reports through
// them. None leaves it.
#include "Options.h"
#include "../Parse.h"

#include "kdac/Target/Gpus.h"

namespace kdac::packtool {

namespace {

constexpr char overview[] =
    "kdac-pack looks into kernel packs, and runs them against the f64 oracle. "
    "It needs neither a compiler nor, except for GPUs, a driver.";

constexpr char examples[] = R"(examples:
  kdac-pack list kda.kdac
  kdac-pack explain kda.kdac --shape=chunk:1:8192:96 --gpu=H200
  kdac-pack verify kda.kdac
  kdac-pack check kda.kdac --device=cuda:0
      every variant against the oracle; what passed is noted in kda.kdac.checked
  kdac-pack bench kda.kdac --device=cuda:0 --shapes=chunk:1:8192:96,step:64:1:96
  kdac-pack embed kda.kdac --name=kda -o generated
      kda.h and kda.c: the pack and typed launch functions, to be compiled in
A shape is FORM:N:T:H[:HV]; T may be packed lengths such as 1300+547+0.
Exit code: 0 good, 1 something failed, 2 refused; one sentence says why.)";

class Grammar {
public:
  explicit Grammar(Options &options) : app(overview, "kdac-pack"), o(options) {
    app.footer(examples);
    app.require_subcommand(0, 1);
    CLI::App &list = command(Command::List, "list", "show the variants");
    addLedger(list, "show which variants GPUs have run");
    CLI::App &explain =
        command(Command::Explain, "explain",
                "signature, launch, cost, floor and ledger of each variant");
    addLedger(explain, "show what GPUs have run");
    explain.add_option("--shape", o.shape,
                       "sizes for the numbers; default chunk:1:8192:96 and "
                       "step:64:1:96");
    explain.add_option("--gpu", o.gpu,
                       "floors of this GPU, part of one of: " + gpuNames());
    command(Command::Verify, "verify",
            "check every byte, and name what is damaged");
    CLI::App &check = command(Command::Check, "check",
                              "run every variant against the f64 oracle");
    addRun(check);
    check
        .add_flag("--emulated", o.settings.emulated,
                  "the GPU is an emulator: run each case once, untimed, leave "
                  "out 65,537 sequences, and record nothing")
        ->excludes("--ledger");
    CLI::App &bench =
        command(Command::Bench, "bench", "time variants, and check heads");
    addRun(bench);
    bench
        .add_option("--shapes", o.settings.bench, "shapes to time, with commas")
        ->default_str("chunk:1:8192:96,step:64:1:96");
    bench
        .add_option("--inputs", o.settings.inputs,
                    "what calls get: random, correlated (keys), gate_zero, "
                    "gate_bound, ...: a time must not depend on it")
        ->capture_default_str();
    bench.add_flag("--overlap", o.settings.overlap,
                   "launches may begin before those ahead of them have ended");
    CLI::App &embed = command(Command::Embed, "embed",
                              "write the pack as C source and header");
    embed.add_option("-o,--output", o.outputDir, "folder of the two files")
        ->capture_default_str();
    embed.add_option("--name", o.name,
                     "prefix of files and symbols; default: the pack's name");
  }

  CLI::App app;

private:
  CLI::App &command(Command which, const char *name, const char *help) {
    CLI::App &sub = *app.add_subcommand(name, help);
    sub.callback([this, which] { o.command = which; });
    sub.add_option("pack", o.pack, "a .kdac file")->required();
    if (which != Command::Embed)
      sub.add_flag("--json", o.json, "JSON on stdout instead of text");
    if (which != Command::Verify && which != Command::Embed)
      sub.add_option("--filter", o.filter,
                     "only variants whose names match this regex");
    return sub;
  }
  void addLedger(CLI::App &sub, const char *help) {
    sub.add_option("--ledger", o.ledger, help)->type_name("FILE");
  }
  void addRun(CLI::App &sub) {
    sub.add_option("--device", o.device, "host, cuda:0, cuda:1, ...")
        ->capture_default_str();
    addLedger(sub, "append a line for every case that passed");
    sub.add_option("--threads", o.settings.threads,
                   "of the oracle and the host; 0: all cores")
        ->check(CLI::Range(0, 1024));
    sub.add_option("--seed", o.settings.seed, "of inputs; 0: from the clock");
    sub.add_option("--time-limit", o.settings.timeLimit, "seconds in all")
        ->capture_default_str()
        ->check(CLI::Range(1.0, 1e6));
    sub.add_option("--stall-limit", o.settings.stallLimit,
                   "seconds without progress after which a variant has failed")
        ->capture_default_str()
        ->check(CLI::Range(0.1, 1e6));
    sub.add_option("--driver", o.settings.driver,
                   "another driver library (for tests)");
    sub.add_flag("--in-process", o.settings.inProcess,
                 "no worker process, for debuggers");
  }

  Options &o;
};

} // namespace

Options parseOptions(int argc, char **argv, std::optional<int> &exitCode) {
  Options options;
  Grammar grammar(options);
  exitCode = parseCommandLine(grammar.app, "kdac-pack", argc, argv, [&] {
    if (grammar.app.get_subcommands().empty())
      throw CLI::RequiredError("a command");
  });
  return options;
}

} // namespace kdac::packtool
