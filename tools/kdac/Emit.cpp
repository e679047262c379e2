// kdac emit: one kernel at a stage, to see it.
#include "Commands.h"

#include "kdac/Target/Targets.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

namespace {
/// What `--stage` names: IR after a stage, or PTX.
struct EmitStage {
  std::optional<Stage> stage; ///< nothing: PTX
  std::optional<TargetKind> kind;
};
} // namespace

static std::optional<EmitStage> parseStage(StringRef text) {
  using Result = std::optional<EmitStage>;
  return StringSwitch<Result>(text)
      .Case("dplr", EmitStage{Stage::Dplr, std::nullopt})
      .Case("tile", EmitStage{Stage::Tile, std::nullopt})
      .Case("ttir", EmitStage{Stage::Ttir, TargetKind::Gpu})
      .Case("scheduled", EmitStage{Stage::Scheduled, TargetKind::Gpu})
      .Case("llvm", EmitStage{Stage::Llvm, TargetKind::Gpu})
      .Case("ptx", EmitStage{std::nullopt, TargetKind::Gpu})
      .Case("host-llvm", EmitStage{Stage::Llvm, TargetKind::Host})
      .Default(std::nullopt);
}

/// The target said, or the one a stage stands for when none was said.
static std::string targetFor(const Options &options, const EmitStage &stage) {
  if (!options.target.empty())
    return options.target;
  return stage.kind == TargetKind::Host ? "host" : "sm_90a";
}

static int output(const Options &options, StringRef text) {
  if (options.output.empty()) {
    outs() << text;
    return 0;
  }
  if (Error error = writeFile(options.output, text))
    return refuse(toString(std::move(error)));
  return 0;
}

int runEmit(const Options &options) {
  std::optional<EmitStage> stage = parseStage(options.stage);
  if (!stage)
    return refuse("unknown stage '" + options.stage +
                  "'; use dplr, tile, ttir, scheduled, llvm, ptx or "
                  "host-llvm");
  Expected<CompileJob> job = jobFromFlags(options, targetFor(options, *stage));
  if (!job)
    return refuse(toString(job.takeError()));
  TargetKind kind = findTarget(job->variant.target)->kind;
  if (stage->kind && *stage->kind != kind)
    return refuse("stage " + options.stage + " does not exist for target " +
                  job->variant.target + "; use " +
                  (kind == TargetKind::Host ? "dplr, tile or host-llvm"
                                            : "dplr, tile, ttir, scheduled, "
                                              "llvm or ptx"));
  Expected<std::string> text =
      stage->stage ? printStage(*job, *stage->stage) : printPtx(*job);
  if (!text)
    return refuse(toString(text.takeError()));
  return output(options, *text);
}

} // namespace kdac
