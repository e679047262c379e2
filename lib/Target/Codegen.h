// Promises: an MLIR module in the LLVM dialect becomes LLVM IR, is optimised
// and leaves as bytes; LLVM's errors come back as errors.
// Does not: lower to the LLVM dialect, or choose the machine.
#ifndef KDAC_TARGET_CODEGEN_H
#define KDAC_TARGET_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

#include <string>

namespace kdac {

struct CodegenOptions {
  llvm::CodeGenFileType file;
  llvm::PipelineTuningOptions tuning;
  /// What LLVM IR needs beyond its translation, before it is verified.
  llvm::function_ref<void(llvm::Module &)> prepare;
};

/// Assembly or an object file of `module` for `machine`.
llvm::Expected<std::string> generateCode(mlir::ModuleOp module,
                                         llvm::TargetMachine &machine,
                                         const CodegenOptions &options);

} // namespace kdac

#endif // KDAC_TARGET_CODEGEN_H
