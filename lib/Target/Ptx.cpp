#include "kdac/Target/Ptx.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

extern "C" {
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

using namespace llvm;

namespace kdac {

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

/// Registers the backend and sets LLVM's own process-wide switch for 32-bit
/// shared pointers, which exists as a command-line option only. It affects
/// nothing but NVPTX, and is set before the first NVPTX machine exists.
static void initializeNvptx() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    auto &options = cl::getRegisteredOptions();
    auto it = options.find("nvptx-short-ptr");
    if (it != options.end())
      static_cast<cl::opt<bool> *>(it->second)->setValue(true);
  });
}

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

/// MLIR's inline assembly carries no `convergent`, without which O3 may
/// duplicate warp-wide `.aligned` instructions into divergent branches.
static void markInlineAsmConvergent(Module &module) {
  for (Function &function : module)
    for (Instruction &inst : instructions(function))
      if (auto *call = dyn_cast<CallInst>(&inst); call && call->isInlineAsm())
        call->addFnAttr(Attribute::Convergent);
}

static Expected<std::unique_ptr<TargetMachine>>
createMachine(const Target &target) {
  Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *backend = TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return failure("this LLVM has no NVPTX backend: " + error);
  TargetOptions options;
  // Multiplications and additions contract to fma; without it they print as
  // mul.rn and add.rn, which ptxas must not fuse.
  options.AllowFPOpFusion = FPOpFusion::Fast;
  std::unique_ptr<TargetMachine> machine(backend->createTargetMachine(
      triple, StringRef(target.name), StringRef(target.ptxFeature), options,
      std::nullopt, std::nullopt, CodeGenOptLevel::Aggressive));
  if (!machine)
    return failure("LLVM knows no chip " + Twine(target.name));
  return machine;
}

static void optimize(Module &module, TargetMachine &machine) {
  LoopAnalysisManager lam;
  FunctionAnalysisManager fam;
  CGSCCAnalysisManager cgam;
  ModuleAnalysisManager mam;
  PassBuilder builder(&machine);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  builder.buildPerModuleDefaultPipeline(OptimizationLevel::O3).run(module, mam);
}

static Expected<std::string> codegen(Module &module, TargetMachine &machine) {
  SmallString<0> text;
  raw_svector_ostream os(text);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr,
                                  CodeGenFileType::AssemblyFile))
    return failure("the NVPTX backend cannot print assembly");
  passes.run(module);
  return std::string(text);
}

static Error verify(const Module &module) {
  std::string text;
  raw_string_ostream os(text);
  if (verifyModule(module, &os))
    return failure("LLVM IR of the kernel is invalid: " + text);
  return Error::success();
}

Expected<std::string> emitPtx(mlir::ModuleOp module, const Target &target) {
  if (target.kind != TargetKind::Gpu)
    return failure("expected a GPU target for PTX, but got " +
                   Twine(target.name));
  initializeNvptx();
  LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<ErrorCollector>(errors));
  std::unique_ptr<Module> ir =
      mlir::translateModuleToLLVMIR(module, context, "kdac");
  if (!ir)
    return failure("the module has operations without a translation to LLVM "
                   "IR; run the llvm stage first");
  markInlineAsmConvergent(*ir);
  Expected<std::unique_ptr<TargetMachine>> machine = createMachine(target);
  if (!machine)
    return machine.takeError();
  ir->setTargetTriple((*machine)->getTargetTriple());
  ir->setDataLayout((*machine)->createDataLayout());
  if (Error error = verify(*ir))
    return error;
  optimize(*ir, **machine);
  Expected<std::string> ptx = codegen(*ir, **machine);
  if (ptx && !errors.empty())
    return failure("LLVM could not select PTX for " + Twine(target.name) +
                   ": " + errors);
  return ptx;
}

} // namespace kdac
