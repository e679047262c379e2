#include "AttentionForm.h"
#include "KernelBuilder.h"
#include "MatmulForm.h"
#include "OnlyOp.h"
#include "PromptForm.h"
#include "RowsForm.h"
#include "kdac/Passes.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_DPLRTOTILEPASS
#include "kdac/Passes.h.inc"

namespace {

/// A kernel of the schedule that size expression `when` picks.
void addWhen(func::FuncOp kernel, const std::string &when) {
  auto old = kernel->getAttrOfType<StringAttr>("kdac.when");
  std::string both = old ? old.str() + " * " + when : when;
  kernel->setAttr("kdac.when", StringAttr::get(kernel.getContext(), both));
}

/// Clusters of programs with an assistant, as many as run at once, and for the
/// heads that are left narrow programs beside them: where all of them run at
/// once, and narrow ones alone do not.
SmallVector<func::FuncOp> buildAssisted(func::FuncOp function,
                                        const Problem &problem,
                                        func::FuncOp others,
                                        tile::ScheduleAttr schedule,
                                        tile::ScheduleAttr narrow) {
  std::string each = std::to_string(tile::kAssistedPrograms);
  std::string blocks = std::to_string(tile::clusterBlocks(schedule)) +
                       " * min(ceildiv(N * HV, " + each + "), clusters)";
  std::string slices = "ceildiv(V, " + std::to_string(narrow.getVTile()) + ")";
  std::string rest = slices + " * minus(N * HV, " + each + " * clusters)";
  std::string fits = "less(" + blocks + " + " + rest + ", sms + 1)";
  auto build = [&](Part part, StringRef suffix, tile::ScheduleAttr schedule,
                   const std::string &grid) {
    KernelBuilder kernel(function, problem, schedule, part);
    kernel.function.setName((function.getName() + suffix).str());
    kernel.function->setAttr("kdac.grid",
                             StringAttr::get(function.getContext(), grid));
    addWhen(kernel.function, "less(sms, N * HV * " + slices + ") * " + fits);
    buildChunkForm(kernel);
    return kernel.function;
  };
  addWhen(others, "less(" + fits + ", 1)");
  return {build(Part::Whole, "_assisted", schedule, blocks),
          build(Part::Rest, "_rest", narrow, rest)};
}

/// Other schedules of the same call, of which its sizes pick one: narrower
/// slices of V where all their programs run at once, and segments where whole
/// sequences would leave most of the GPU idle.
void buildAlternatives(func::FuncOp function, const Problem &problem,
                       KernelBuilder &kernel) {
  SmallVector<func::FuncOp> whole = {kernel.function};
  if (auto schedule =
          function->getAttrOfType<tile::ScheduleAttr>(tile::kFewProgramsAttr)) {
    std::string few =
        "N * HV * ceildiv(V, " + std::to_string(schedule.getVTile()) + ")";
    addWhen(kernel.function, "less(sms, " + few + ")");
    KernelBuilder narrow(function, problem, schedule);
    narrow.function.setName((function.getName() + "_few").str());
    addWhen(narrow.function, "less(" + few + ", sms + 1)");
    buildChunkForm(narrow);
    whole.push_back(narrow.function);
    if (auto assisted =
            function->getAttrOfType<tile::ScheduleAttr>(tile::kAssistedAttr))
      llvm::append_range(whole,
                         buildAssisted(function, problem, kernel.function,
                                       assisted, schedule));
  }
  if (auto count = function->getAttrOfType<IntegerAttr>(tile::kSegmentsAttr)) {
    std::string pays =
        buildSegments(function, problem, kernel.schedule, count.getInt());
    for (func::FuncOp other : whole)
      addWhen(other, "less(" + pays + ", 1)");
  }
}

/// A kernel before or after the recurrence's, if the function has a schedule
/// for it.
void buildBeside(func::FuncOp function, const Problem &problem,
                 StringRef attribute, StringRef suffix,
                 llvm::function_ref<void(KernelBuilder &)> build) {
  auto schedule = function->getAttrOfType<tile::ScheduleAttr>(attribute);
  if (!schedule)
    return;
  KernelBuilder kernel(function, problem, schedule);
  kernel.function.setName((function.getName() + suffix).str());
  build(kernel);
}

/// A call runs the step, which keeps a log, or with `accepted` the kernel that
/// commits it.
void buildLogged(func::FuncOp function, const Problem &problem,
                 KernelBuilder &step) {
  KernelBuilder commit(function, problem, step.schedule);
  commit.function.setName((function.getName() + "_commit").str());
  buildCommit(commit);
  OpBuilder b(function);
  std::string programs = "N * HV * ceildiv(V, " +
                         std::to_string(step.schedule.getVTile()) + ") * ";
  Attribute bytes = b.getStringAttr(step.logBytes());
  for (auto [kernel, when] : {std::pair(step.function, "less(committed, 1)"),
                              std::pair(commit.function, "committed")}) {
    kernel->setAttr("kdac.grid", b.getStringAttr(programs + when));
    kernel->setAttr("kdac.workspace", bytes);
  }
}

/// The kernels of a recurrence, in the order of a call's launches.
LogicalResult buildRecurrence(func::FuncOp function) {
  FailureOr<Problem> problem = Problem::match(function);
  if (failed(problem))
    return failure();
  buildBeside(function, *problem, tile::kConvolutionAttr, "_convolve",
              buildConvolution);
  KernelBuilder kernel(function, *problem, scheduleOf(function));
  if (kernel.schedule.getForm() == "chunk")
    buildChunkForm(kernel);
  else
    buildStepForm(kernel);
  if (kernel.keepsLog())
    buildLogged(function, *problem, kernel);
  buildAlternatives(function, *problem, kernel);
  buildBeside(function, *problem, tile::kOutputNormAttr, "_norm",
              buildOutputNorm);
  buildBeside(function, *problem, tile::kKeyCachesAttr, "_caches",
              kernel.keepsLog() ? buildLoggedCaches : buildKeyCaches);
  if (problem->recurrence.getSlots())
    buildSlotCheck(kernel);
  return success();
}

LogicalResult build(func::FuncOp function) {
  if (!scheduleOf(function))
    return function.emitOpError()
           << "expected a tile.schedule; run dplr-select-schedule first";
  switch (function->getAttrOfType<dplr::FormAttr>("dplr.form").getValue()) {
  case dplr::Form::Chunk:
  case dplr::Form::Step:
    return buildRecurrence(function);
  case dplr::Form::Rows:
    return buildRows(function);
  case dplr::Form::Attention:
    return buildAttention(function);
  case dplr::Form::Prompt:
    return buildPrompt(function);
  case dplr::Form::Matmul:
    return buildMatmul(function);
  }
  llvm_unreachable("covered switch");
}

struct DplrToTile : impl::DplrToTilePassBase<DplrToTile> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->getAttrOfType<dplr::FormAttr>("dplr.form"))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      if (failed(build(function)))
        return signalPassFailure();
      function.erase();
    }
  }
};

} // namespace
} // namespace kdac
