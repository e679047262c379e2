// The order of passes, decided here and nowhere else.
#include "kdac/Pipeline/Pipeline.h"
#include "kdac/Passes.h"
#include "kdac/Target/Host.h"
#include "kdac/Target/Targets.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace kdac {

void registerKdacDialects(DialectRegistry &registry) {
  registry.insert<dplr::DplrDialect, tile::TileDialect, tt::TritonDialect,
                  func::FuncDialect, arith::ArithDialect, math::MathDialect,
                  scf::SCFDialect, vector::VectorDialect, LLVM::LLVMDialect,
                  NVVM::NVVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

/// From per-thread arith, scf and vector code to the LLVM dialect.
static void buildNVVMLowering(OpPassManager &pm) {
  pm.addPass(createCSEPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertNVVMToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

/// From tiles to the LLVM dialect for a CPU with vectors of `vectorWidth`.
static void buildHostExit(OpPassManager &pm, int64_t vectorWidth) {
  TileToHostPassOptions options;
  options.vectorWidth = vectorWidth ? vectorWidth : nativeVectorWidth();
  pm.addPass(createTileToHostPass(options));
  buildHostLowering(pm);
}

/// From tiles to Triton IR. Triton takes a .ttir file as it is, without its own
/// clean-up.
static void buildTritonExit(OpPassManager &pm) {
  pm.addPass(createTileToTTIRPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void buildPipeline(OpPassManager &pm, llvm::StringRef target, Stage stage,
                   const ScheduleOptions &options, LaunchAbi abi) {
  if (stage == Stage::Dplr)
    return;
  DplrSelectSchedulePassOptions schedule;
  schedule.target = target.str();
  schedule.chunk = options.chunk;
  schedule.vTile = options.vTile;
  schedule.warps = options.warps;
  schedule.roles = options.roles;
  schedule.segments = options.segments;
  schedule.order = options.order;
  // A Triton IR file holds one kernel.
  if (stage == Stage::Ttir && options.roles.empty())
    schedule.roles = "fused";
  pm.addPass(createDplrSelectSchedulePass(schedule));
  pm.addPass(createDplrToTilePass());
  // Common factors (exp2 of G, the decayed rows) become one value before any
  // exit decides where values live.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  if (stage == Stage::Ttir)
    return buildTritonExit(pm);
  const Target *row = findTarget(target);
  if (stage == Stage::Tile || !row)
    return;
  if (row->kind == TargetKind::Host) {
    // Places values itself: there is no scheduled stage.
    if (stage == Stage::Llvm)
      buildHostExit(pm, options.vectorWidth);
    return;
  }
  pm.addPass(createTileSplitRolesPass());
  // What only the other role needs is dead in each.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createTilePlacePass());
  if (stage == Stage::Scheduled)
    return;
  TileToNVVMPassOptions nvvm;
  nvvm.minBlocks = options.minBlocks;
  for (auto &[kernel, blocks] : options.minBlocksOf)
    nvvm.minBlocksOf.push_back(kernel + "=" + std::to_string(blocks));
  pm.addPass(createTileToNVVMPass(nvvm));
  // Reads structured control flow, which the next ones take apart.
  pm.addPass(createTileVerifyAsyncPass());
  buildNVVMLowering(pm);
  if (abi == LaunchAbi::Triton)
    pm.addPass(createTileTritonAbiPass());
}

} // namespace kdac
