#include "KernelBuilder.h"
#include "kdac/Passes.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_DPLRTOTILEPASS
#include "kdac/Passes.h.inc"

namespace {

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
