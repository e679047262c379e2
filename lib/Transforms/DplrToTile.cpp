#include "AttentionForm.h"
#include "KernelBuilder.h"
#include "MatmulForm.h"
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

LogicalResult lower(func::FuncOp function) {
  auto schedule =
      function->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
  if (!schedule)
    return function.emitOpError()
           << "expected a tile.schedule; run dplr-select-schedule first";
  if (isRowsForm(function)) {
    FailureOr<Operation *> op = matchRows(function);
    if (failed(op))
      return failure();
    buildRows(function, *op, schedule);
    function.erase();
    return success();
  }
  if (isAttentionForm(function)) {
    FailureOr<dplr::LatentAttentionOp> op = matchAttention(function);
    if (failed(op))
      return failure();
    buildAttention(function, *op, schedule);
    function.erase();
    return success();
  }
  if (isPromptForm(function)) {
    FailureOr<dplr::PromptAttentionOp> op = matchPrompt(function);
    if (failed(op))
      return failure();
    buildPrompt(function, *op, schedule);
    function.erase();
    return success();
  }
  if (isMatmulForm(function)) {
    FailureOr<dplr::GroupedMatmulOp> op = matchMatmul(function);
    if (failed(op))
      return failure();
    buildMatmul(function, *op,
                {schedule, function->getAttrOfType<tile::ScheduleAttr>(
                               tile::kFewProgramsAttr)});
    function.erase();
    return success();
  }
  FailureOr<Problem> problem = Problem::match(function);
  if (failed(problem))
    return failure();
  buildBeside(function, *problem, tile::kConvolutionAttr, "_convolve",
              buildConvolution);
  KernelBuilder kernel(function, *problem, schedule);
  if (schedule.getForm() == "chunk")
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
  function.erase();
  return success();
}

struct DplrToTile : impl::DplrToTilePassBase<DplrToTile> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr("dplr.form"))
        functions.push_back(function);
    for (func::FuncOp function : functions)
      if (failed(lower(function)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace kdac
