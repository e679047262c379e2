// Compiled with exceptions: CLI11 reports errors by throwing, and none leaves
// this file.
#include "Options.h"

#include <CLI/CLI.hpp>

namespace kdac::gputest {

bool parseOptions(int argc, char **argv, Options &o, int &code) {
  CLI::App app("Runs the variants of kernel packs against the f64 oracle on "
               "this machine's GPU (or host), times them, and appends ledger "
               "lines.",
               "kdac-gpu-test");
  app.footer("Examples:\n"
             "  kdac-gpu-test packs/default.kdac --ledger out.jsonl\n"
             "  kdac-gpu-test a.kdac --bench chunk:1:8192:96,step:64:1:96 "
             "--ledger out.jsonl\n"
             "  kdac-gpu-test a.kdac --host --filter 'chunk.k64'\n"
             "A shape is FORM:N:T:H[:HV]; T may be a list of packed lengths "
             "such as 1300+547+0+963.\n"
             "Exit code: 0 all passed, 1 something failed or was not run, 2 "
             "bad usage or no device.");
  app.add_option("packs", o.packs, "pack files")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_flag("--host", o.host, "run the host images");
  app.add_option("--device", o.device, "GPU number")->capture_default_str();
  app.add_option("--driver", o.driver, "driver library (for tests)")
      ->take_last()
      ->capture_default_str();
  app.add_option("--ledger", o.ledger, "append ledger lines to this file");
  app.add_option("--filter", o.filter, "only variants matching this regex");
  app.add_option("--bench", o.bench, "shapes to time, comma separated");
  app.add_option("--bench-filter", o.benchFilter,
                 "time only variants matching this regex");
  app.add_flag("!--no-cases", o.cases, "skip the correctness cases");
  app.add_option("--time-limit", o.timeLimit, "seconds for everything")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--stall-limit", o.stallLimit,
                 "seconds without progress after which a variant has failed")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_flag("--in-process", o.inProcess,
               "no worker process: for cuda-gdb and compute-sanitizer; a crash "
               "or a hang then ends everything");
  app.add_option("--threads", o.threads, "threads of the oracle; 0: all cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--seed", o.seed, "of the inputs; 0: from the clock");
  app.add_option("--commit", o.commit, "source commit, for the ledger");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    code = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
  return true;
}

} // namespace kdac::gputest
