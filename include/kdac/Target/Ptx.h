// Promises: PTX text of an LLVM-dialect kernel module, in this process, the
// same bytes every time. Does not: run passes on MLIR (include/kdac/Pipeline),
// call ptxas, or touch files.
#ifndef KDAC_TARGET_PTX_H
#define KDAC_TARGET_PTX_H

#include "kdac/Target/Targets.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <string>

namespace kdac {

/// Optimises `module` (LLVM and NVVM dialects only) at O3 and prints it as PTX
/// for `target`, a GPU row. Shared, local and constant pointers are 32 bits
/// wide. Errors: a module that LLVM cannot translate, verify or select, by
/// LLVM's own words. Safe to call from several threads on modules of different
/// contexts.
llvm::Expected<std::string> emitPtx(mlir::ModuleOp module,
                                    const Target &target);

} // namespace kdac

#endif // KDAC_TARGET_PTX_H
