// The order of passes, decided here and nowhere else.
#include "kdac/Pipeline/Pipeline.h"
#include "kdac/Passes.h"
#include "kdac/Target/Host.h"
#include "kdac/Target/Targets.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace kdac {

void registerKdacDialects(DialectRegistry &registry) {
  registry.insert<dplr::DplrDialect, tile::TileDialect, func::FuncDialect,
                  arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                  vector::VectorDialect, LLVM::LLVMDialect,
                  NVVM::NVVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

void buildPipeline(OpPassManager &pm, llvm::StringRef target, Stage stage,
                   const ScheduleOptions &options) {
  if (stage == Stage::Dplr)
    return;
  DplrSelectSchedulePassOptions schedule;
  schedule.target = target.str();
  schedule.chunk = options.chunk;
  schedule.vTile = options.vTile;
  schedule.warps = options.warps;
  pm.addPass(createDplrSelectSchedulePass(schedule));
  pm.addPass(createDplrToTilePass());
  // Common factors (exp2 of G, the decayed rows) become one value before any
  // exit decides where values live.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  const Target *row = findTarget(target);
  if (stage == Stage::Tile || !row)
    return;
  if (row->kind == TargetKind::Host) {
    TileToHostPassOptions host;
    host.vectorWidth = options.vectorWidth;
    pm.addPass(createTileToHostPass(host));
    buildHostLowering(pm);
    return;
  }
}

} // namespace kdac
