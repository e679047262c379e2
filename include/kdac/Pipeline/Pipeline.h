// Promises: the order of passes, from a variant to LLVM dialect, in one place.
// Does not: translate to PTX or objects (include/kdac/Target), or read command
// lines.
#ifndef KDAC_PIPELINE_PIPELINE_H
#define KDAC_PIPELINE_PIPELINE_H

#include "kdac/Variant/LaunchAbi.h"
#include "kdac/Variant/Variant.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <map>
#include <string>

namespace kdac {

/// Overrides of the schedule; 0 lets dplr-select-schedule choose.
struct ScheduleOptions {
  int64_t chunk = 0;
  int64_t vTile = 0;
  int64_t warps = 0;
  int64_t segments = 0; ///< of sequences of few programs; 1: never cut them
  std::string roles;    ///< "fused", "split", "warps", "cluster" or empty
  std::string order;    ///< of packed sequences: "longest", "given" or empty
  /// Blocks an SM must hold; 0: as the schedule says; -1: ptxas decides.
  int64_t minBlocks = 0;
  std::map<std::string, int64_t> minBlocksOf; ///< the same for one kernel
  int64_t vectorWidth = 0; ///< host: hostVectorWidth(cpu); 0: of this CPU
};

/// The stages of `kdac emit --stage=`.
enum class Stage { Dplr, Tile, Ttir, Scheduled, Llvm };

/// Every dialect the pipeline creates, with its translations to LLVM IR.
void registerKdacDialects(mlir::DialectRegistry &registry);

/// The resolved `variant` as a dplr function called entryName(variant).
mlir::OwningOpRef<mlir::ModuleOp> buildDplrModule(mlir::MLIRContext &context,
                                                  const Variant &variant);

/// Passes that take a dplr module to `stage` for `target` (a row of the target
/// table): select-schedule, dplr-to-tile, [place], to-nvvm or to-host, to llvm;
/// or to-ttir. `abi` is that of GPU kernels; host kernels have one of their
/// own.
void buildPipeline(mlir::OpPassManager &pm, llvm::StringRef target, Stage stage,
                   const ScheduleOptions &options = {},
                   LaunchAbi abi = LaunchAbi::Bare);

} // namespace kdac

#endif // KDAC_PIPELINE_PIPELINE_H
