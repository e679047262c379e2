// What the exits to PTX and to host objects share.
#include "Codegen.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"

using namespace llvm;

namespace kdac {

namespace {

/// Collects LLVM's errors; the default handler would end the process.
struct ErrorCollector : DiagnosticHandler {
  explicit ErrorCollector(std::string &text) : text(text) {}
  bool handleDiagnostics(const DiagnosticInfo &info) override {
    if (info.getSeverity() != DS_Error)
      return true;
    raw_string_ostream os(text);
    DiagnosticPrinterRawOStream printer(os);
    info.print(printer);
    return true;
  }
  std::string &text;
};

void optimize(Module &module, TargetMachine &machine,
              const PipelineTuningOptions &tuning) {
  LoopAnalysisManager lam;
  FunctionAnalysisManager fam;
  CGSCCAnalysisManager cgam;
  ModuleAnalysisManager mam;
  PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  builder.buildPerModuleDefaultPipeline(OptimizationLevel::O3).run(module, mam);
}

Expected<std::string> emit(Module &module, TargetMachine &machine,
                           CodeGenFileType file) {
  SmallString<0> bytes;
  raw_svector_ostream os(bytes);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr, file))
    return createStringError(
        "the backend of " + machine.getTargetTriple().str() +
        (file == CodeGenFileType::ObjectFile ? " cannot write objects"
                                             : " cannot print assembly"));
  passes.run(module);
  return std::string(bytes);
}

} // namespace

Expected<std::string> generateCode(mlir::ModuleOp module,
                                   TargetMachine &machine,
                                   const CodegenOptions &options) {
  LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<ErrorCollector>(errors));
  std::unique_ptr<Module> ir =
      mlir::translateModuleToLLVMIR(module, context, "kdac");
  if (!ir)
    return createStringError("the module has operations without a translation "
                             "to LLVM IR; run the llvm stage first");
  ir->setTargetTriple(machine.getTargetTriple());
  ir->setDataLayout(machine.createDataLayout());
  options.prepare(*ir);
  std::string text;
  raw_string_ostream os(text);
  if (verifyModule(*ir, &os))
    return createStringError("LLVM IR of the kernel is invalid: " + text);
  optimize(*ir, machine, options.tuning);
  Expected<std::string> code = emit(*ir, machine, options.file);
  if (code && !errors.empty())
    return createStringError("LLVM could not select code for " +
                             machine.getTargetCPU() + ": " + errors);
  return code;
}

} // namespace kdac
