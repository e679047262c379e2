#include "kdac/Target/Ptx.h"
#include "Codegen.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CommandLine.h"

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

Expected<std::string> emitPtx(mlir::ModuleOp module, const Target &target) {
  if (target.kind != TargetKind::Gpu)
    return failure("expected a GPU target for PTX, but got " +
                   Twine(target.name));
  initializeNvptx();
  Expected<std::unique_ptr<TargetMachine>> machine = createMachine(target);
  if (!machine)
    return machine.takeError();
  return generateCode(
      module, **machine,
      {CodeGenFileType::AssemblyFile, {}, markInlineAsmConvergent});
}

} // namespace kdac
