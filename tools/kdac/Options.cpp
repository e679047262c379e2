// The only file of kdac compiled with exceptions: CLI11 reports through them.
// None leaves it.
#include "Options.h"
#include "../Parse.h"

#include <CLI/CLI.hpp>

namespace kdac {

namespace {

constexpr char overview[] =
    "kdac compiles diagonal-plus-rank-one recurrences (KDA and its family) "
    "ahead of time.";

constexpr char compileExamples[] = R"(examples:
  kdac compile --targets=host,sm_90a -o kda.kdac
      the default KDA chunk kernel for the CPU and for Hopper, as one pack
  kdac compile packs/default.yaml -o default.kdac --loose=out
      a pack spec; also loose .ptx, .cubin and .so files in out/
  kdac compile --form=step --key-dim=64 --value-dim=64 --targets=sm_80 \
      --no-assemble --loose=out
      PTX only, no ptxas needed
  kdac compile --form=step --targets=sm_90a --triton=cache
      metadata and cubins that Triton's CompiledKernel loads; docs/TRITON.md)";

constexpr char emitExamples[] = R"(examples:
  kdac emit --stage=dplr
      what the default KDA chunk kernel computes
  kdac emit --stage=tile --target=sm_90a
      its block program
  kdac emit --stage=ptx --target=sm_90a --form=step -o step.ptx
  kdac emit --stage=ttir --target=sm_80 -o kda.ttir
      Triton IR with the schedule of that target, for any GPU Triton compiles
      for; docs/TRITON.md)";

constexpr char checkExamples[] = R"(examples:
  kdac check
      the default KDA chunk kernel on this CPU against the f64 oracle
  kdac check --form=step --recurrence=gated_delta --tokens=64
  kdac check --lengths=0,1,63,64,65 --recipe=correlated)";

constexpr char listExamples[] = R"(examples:
  kdac list
      recurrences, targets and options
  kdac list packs/default.yaml
      the variants of a pack spec
  kdac list default.kdac --ledger=test/gpu/ledger.jsonl
      the variants of a pack, and which of them a GPU has run)";

constexpr char embedExamples[] = R"(examples:
  kdac embed kda.kdac -o generated
      generated/kda.h and kda.c: the pack and typed launch functions
  kdac embed build/k3.kdac --name=engine_kernels
      the same in this folder, with another prefix; docs/EMBEDDING.md
  kdac embed kda.kdac --object=native -o generated
      the pack in kda.o instead, so that the C compiler need not read it
  kdac embed triton.kdac --triton-aot -o generated
      C with the symbols and linker lines of triton.tools.compile)";

/// Adds one string flag per option; each appends to options.flags.
void addFlags(CLI::App &app, const std::vector<FlagHelp> &flags,
              const std::string &group, Options &options) {
  for (const FlagHelp &flag : flags) {
    if (flag.name == "l2norm") {
      auto add = [&](const char *name, const char *value,
                     const std::string &help) {
        return app
            .add_flag_callback(
                name,
                [&options, value] {
                  options.flags.push_back({"l2norm", value});
                },
                help)
            ->group(group);
      };
      add("--l2norm", "true", flag.help)
          ->excludes(add("--no-l2norm", "false", "leave q and k as they are"));
      continue;
    }
    app.add_option_function<std::string>(
           "--" + flag.name,
           [&options, name = flag.name](const std::string &value) {
             options.flags.push_back({name, value});
           },
           flag.help + ": " + flag.values)
        ->group(group)
        ->type_name("");
  }
}

class Grammar {
public:
  Grammar(Options &options, const std::vector<FlagHelp> &variantFlags,
          const std::vector<FlagHelp> &scheduleFlags,
          const std::string &targetNames, const std::string &recipeNames)
      : app(overview, "kdac"), options(options), variantFlags(variantFlags),
        scheduleFlags(scheduleFlags), targets(targetNames),
        recipes(recipeNames) {
    app.require_subcommand(0, 1);
    app.set_help_all_flag("--help-all", "help of every command");
    app.set_version_flag("--version", "kdac " KDAC_VERSION);
    app.footer("`kdac COMMAND --help` has options and examples.");
    addCompile();
    addEmit();
    addCheck();
    addList();
    addEmbed();
  }

  CLI::App app;

private:
  CLI::App &command(Command which, const char *name, const char *help,
                    const char *examples) {
    CLI::App &sub = *app.add_subcommand(name, help);
    sub.footer(examples);
    sub.callback([this, which] { options.command = which; });
    return sub;
  }
  void addKernelFlags(CLI::App &sub) {
    addFlags(sub, variantFlags, "Variant", options);
    addFlags(sub, scheduleFlags, "Schedule (default: chosen by kdac)", options);
  }
  void addAssembler(CLI::App &sub);
  void addCompile();
  void addEmit();
  void addCheck();
  void addList();
  void addEmbed();

  Options &options;
  const std::vector<FlagHelp> &variantFlags, &scheduleFlags;
  const std::string &targets, &recipes;
};

void Grammar::addAssembler(CLI::App &sub) {
  sub.add_option("--ptxas", options.ptxas,
                 "assembler; default: $KDAC_PTXAS, $PATH, /usr/local/cuda/bin")
      ->envname("KDAC_PTXAS")
      ->type_name("PATH");
  sub.add_flag("!--no-assemble", options.assemble,
               "PTX only; no ptxas is needed");
}

void Grammar::addCompile() {
  CLI::App &sub = command(Command::Compile, "compile",
                          "compile variants into a pack", compileExamples);
  sub.add_option("spec", options.spec,
                 "pack spec (YAML); without it the flags name one variant");
  sub.add_option("--targets", options.targets, "any of: " + targets)
      ->delimiter(',')
      ->type_name("");
  sub.add_option("-o,--output", options.output, "the .kdac file to write")
      ->type_name("FILE");
  sub.add_option("--loose", options.looseDir,
                 "also write .ptx, .cubin and .so files into a directory")
      ->type_name("DIR");
  sub.add_option("--triton", options.tritonDir,
                 "also write what Triton's loader reads into a directory: one "
                 "folder a kernel, of one launch each")
      ->type_name("DIR");
  sub.add_option(
         "--abi", options.abi,
         "parameters of GPU kernels: bare, kdac's alone, or triton, with "
         "two unread scratch pointers after them; default: bare, and "
         "triton with --triton")
      ->check(CLI::IsMember({"bare", "triton"}))
      ->type_name("ABI");
  addAssembler(sub);
  sub.add_flag("--check", options.check,
               "run host kernels against the f64 oracle before writing");
  sub.add_option("-j,--jobs", options.jobs,
                 "variants compiled at once; default: all cores")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  addKernelFlags(sub);
}

void Grammar::addEmit() {
  CLI::App &sub = command(Command::Emit, "emit", "print one kernel at a stage",
                          emitExamples);
  sub.add_option("--stage", options.stage,
                 "dplr, tile, ttir, scheduled, llvm, ptx or host-llvm")
      ->required()
      ->type_name("");
  sub.add_option("--target", options.target, "one of: " + targets)
      ->type_name("");
  sub.add_option("-o,--output", options.output, "write to a file")
      ->type_name("FILE");
  addKernelFlags(sub);
}

void Grammar::addCheck() {
  CLI::App &sub = command(Command::Check, "check",
                          "run one kernel on this CPU against the f64 oracle",
                          checkExamples);
  auto size = [&](const char *name, int64_t &field, const char *help,
                  int64_t least) {
    sub.add_option(name, field, help)
        ->capture_default_str()
        ->check(CLI::Range(least, int64_t(1) << 40))
        ->group("Case")
        ->type_name("N");
  };
  size("--tokens", options.tokens, "tokens of each sequence", 0);
  size("--sequences", options.sequences, "sequences", 0);
  size("--heads", options.heads, "key heads", 1);
  size("--value-heads", options.valueHeads, "value heads; 0: key heads", 0);
  size("--columns", options.columns, "form rows: D; 0: width, or 256", 0);
  sub.add_option("--seed", options.seed, "of the random inputs")
      ->capture_default_str()
      ->group("Case")
      ->type_name("N");
  sub.add_option("--lengths", options.lengths,
                 "packed sequences of these lengths")
      ->delimiter(',')
      ->check(CLI::Range(int64_t(0), int64_t(1) << 40))
      ->group("Case")
      ->type_name("N,...");
  sub.add_option("--recipe", options.recipe, "inputs: " + recipes)
      ->capture_default_str()
      ->group("Case")
      ->type_name("");
  addKernelFlags(sub);
}

void Grammar::addList() {
  CLI::App &sub = command(Command::List, "list",
                          "show recurrences, targets, variants", listExamples);
  sub.add_option("file", options.spec, "a pack spec or a .kdac pack");
  sub.add_option("--targets", options.targets,
                 "replace the targets of a pack spec")
      ->delimiter(',')
      ->type_name("");
  sub.add_option("--ledger", options.ledger,
                 "runs on GPUs, one JSON object a line")
      ->type_name("FILE");
  addAssembler(sub);
}

void Grammar::addEmbed() {
  CLI::App &sub = command(Command::Embed, "embed",
                          "write a pack as C source and header", embedExamples);
  sub.add_option("pack", options.spec, "a .kdac pack")->required();
  sub.add_option("-o,--output", options.output, "folder of the two files")
      ->type_name("DIR");
  sub.add_option("--name", options.name,
                 "prefix of files and symbols; default: the pack's name")
      ->type_name("NAME");
  CLI::Option *object = sub.add_option(
      "--object", options.object,
      "put the pack into NAME.o for a machine: native, x86-64 or aarch64");
  object->type_name("MACHINE");
  sub.add_flag("--triton-aot", options.tritonAot,
               "files as triton.tools.compile writes, for triton.tools.link")
      ->excludes(object);
}

} // namespace

ParsedCommandLine parseCommandLine(int argc, const char *const *argv,
                                   const std::vector<FlagHelp> &variantFlags,
                                   const std::vector<FlagHelp> &scheduleFlags,
                                   const std::string &targetNames,
                                   const std::string &recipeNames) {
  ParsedCommandLine parsed;
  auto refuse = [](const std::string &sentence) {
    std::cerr << "kdac: " << sentence
              << "; `kdac --help` and `kdac COMMAND --help` show what works\n";
    return ParsedCommandLine{{}, 2};
  };
  Grammar grammar(parsed.options, variantFlags, scheduleFlags, targetNames,
                  recipeNames);
  if (std::string flag = flagWithoutValue(argc, argv); !flag.empty())
    return refuse(flag + " needs a value");
  try {
    grammar.app.parse(argc, argv);
    // Said here, as CLI11 would also say it about a misspelled command.
    if (grammar.app.get_subcommands().empty())
      throw CLI::RequiredError("a command");
  } catch (const CLI::Success &help) {
    parsed.exitCode = grammar.app.exit(help);
  } catch (const CLI::ArgumentMismatch &error) {
    return refuse(sentenceOf(error));
  } catch (const CLI::ParseError &error) {
    return refuse(error.what());
  }
  return parsed;
}

} // namespace kdac
