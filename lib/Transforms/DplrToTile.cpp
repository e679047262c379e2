#include "KernelBuilder.h"
#include "kdac/Passes.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_DPLRTOTILEPASS
#include "kdac/Passes.h.inc"

namespace {

/// A second kernel of the same call, with narrower slices of V, which stands in
/// for `kernel` where all its programs run at once: the sizes of a call leave
/// one of them without instances.
void buildForFew(func::FuncOp function, const Problem &problem,
                 KernelBuilder &kernel, tile::ScheduleAttr schedule) {
  auto programs = [](int64_t vTile) {
    return "N * HV * ceildiv(V, " + std::to_string(vTile) + ")";
  };
  std::string few = programs(schedule.getVTile());
  OpBuilder b(function);
  kernel.function->setAttr(
      "kdac.grid", b.getStringAttr(programs(kernel.schedule.getVTile()) +
                                   " * less(sms, " + few + ")"));
  KernelBuilder narrow(function, problem, schedule);
  narrow.function.setName((function.getName() + "_few").str());
  narrow.function->setAttr(
      "kdac.grid", b.getStringAttr(few + " * less(" + few + ", sms + 1)"));
  buildChunkForm(narrow);
}

LogicalResult lower(func::FuncOp function) {
  auto schedule =
      function->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
  if (!schedule)
    return function.emitOpError()
           << "expected a tile.schedule; run dplr-select-schedule first";
  FailureOr<Problem> problem = Problem::match(function);
  if (failed(problem))
    return failure();
  KernelBuilder kernel(function, *problem, schedule);
  if (schedule.getForm() == "chunk")
    buildChunkForm(kernel);
  else
    buildStepForm(kernel);
  if (auto other =
          function->getAttrOfType<tile::ScheduleAttr>(tile::kFewProgramsAttr))
    buildForFew(function, *problem, kernel, other);
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
