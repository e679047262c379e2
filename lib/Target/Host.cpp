#include "kdac/Target/Host.h"
#include "HostMachine.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;

namespace kdac {

void buildHostLowering(mlir::OpPassManager &pm) {
  // Ceiling and floor divisions of scalars have no LLVM form of their own.
  pm.addPass(mlir::arith::createArithExpandOpsPass());
  pm.addPass(mlir::createCSEPass());
  pm.addPass(mlir::createSCFToControlFlowPass());
  pm.addPass(mlir::createConvertVectorToLLVMPass());
  pm.addPass(mlir::createConvertMathToLLVMPass());
  pm.addPass(mlir::createArithToLLVMConversionPass());
  pm.addPass(mlir::createConvertControlFlowToLLVMPass());
  pm.addPass(mlir::createReconcileUnrealizedCastsPass());
}

//===-- Objects -----------------------------------------------------------===//

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

/// Attributes that LLVM has no other place for.
static void prepare(Module &module, const TargetMachine &machine) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  std::string bits = std::to_string(vectorWidth(machine) * 32);
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    // The kernels' vectors are as wide as the machine's, also on CPUs for
    // which LLVM prefers 256 bits.
    function.addFnAttr("prefer-vector-width", bits);
    function.addFnAttr("min-legal-vector-width", bits);
    // Loops that clear or copy stay loops: objects refer to no memset.
    function.addFnAttr("no-builtins");
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr(Attribute::NoUnwind);
  }
}

static void optimize(Module &module, TargetMachine &machine) {
  LoopAnalysisManager lam;
  FunctionAnalysisManager fam;
  CGSCCAnalysisManager cgam;
  ModuleAnalysisManager mam;
  PipelineTuningOptions tuning;
  // Kernels come as vector code with the unrolling they want; more of it costs
  // half of the compile time for 2 % of speed.
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  builder.buildPerModuleDefaultPipeline(OptimizationLevel::O3).run(module, mam);
}

static Expected<std::string> codegen(Module &module, TargetMachine &machine) {
  SmallString<0> bytes;
  raw_svector_ostream os(bytes);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr,
                                  CodeGenFileType::ObjectFile))
    return createStringError("the backend of " +
                             machine.getTargetTriple().str() +
                             " cannot write objects");
  passes.run(module);
  return std::string(bytes);
}

Expected<std::string> emitHostObject(mlir::ModuleOp module, StringRef cpu) {
  Expected<std::unique_ptr<TargetMachine>> machine = createHostMachine(cpu);
  if (!machine)
    return machine.takeError();
  LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<ErrorCollector>(errors));
  std::unique_ptr<Module> ir =
      mlir::translateModuleToLLVMIR(module, context, "kdac");
  if (!ir)
    return createStringError("the module has operations without a translation "
                             "to LLVM IR; run the llvm stage first");
  prepare(*ir, **machine);
  std::string text;
  raw_string_ostream os(text);
  if (verifyModule(*ir, &os))
    return createStringError("LLVM IR of the kernel is invalid: " + text);
  optimize(*ir, **machine);
  Expected<std::string> object = codegen(*ir, **machine);
  if (object && !errors.empty())
    return createStringError("LLVM could not select code for " + cpu + ": " +
                             errors);
  return object;
}

//===-- Shared objects ----------------------------------------------------===//

Expected<std::string> findHostLinker(ArrayRef<std::string> directories) {
  SmallVector<StringRef> paths(directories.begin(), directories.end());
  for (StringRef name : {"ld.lld", "ld", "cc"})
    if (ErrorOr<std::string> path = sys::findProgramByName(name, paths))
      return *path;
  return createStringError("no linker for host objects: looked for ld.lld, ld "
                           "and cc in " +
                           join(directories, ", "));
}

static std::string readFile(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

static Error writeFile(StringRef path, StringRef bytes) {
  std::error_code code;
  raw_fd_ostream os(path, code);
  if (!code) {
    os << bytes;
    os.close();
    code = os.error();
  }
  if (!code)
    return Error::success();
  os.clear_error(); // else the stream ends the process
  return createStringError("cannot write " + path + ": " + code.message());
}

Expected<std::string> linkHostObject(StringRef object, StringRef linker,
                                     StringRef keepDir) {
  SmallString<128> input, output, log;
  sys::path::append(input, keepDir, "kdac-%%%%%%%%.o");
  sys::fs::createUniquePath(input, input, /*MakeAbsolute=*/false);
  (output = input) += ".so";
  (log = input) += ".log";
  if (Error error = writeFile(input, object))
    return error;
  bool isDriver = !sys::path::filename(linker).starts_with("ld");
  SmallVector<StringRef> command = {linker, "-shared"};
  if (isDriver)
    command.push_back("-nostdlib");
  command.append({"-o", output, input});
  std::string launchError;
  int code = sys::ExecuteAndWait(linker, command, std::nullopt,
                                 {StringRef(), log.str(), log.str()},
                                 /*SecondsToWait=*/60, 0, &launchError);
  std::string bytes = readFile(output), printed = readFile(log);
  sys::fs::remove(output);
  sys::fs::remove(log);
  if (code == 0 && !bytes.empty()) {
    sys::fs::remove(input);
    return bytes;
  }
  return createStringError("the linker failed on " + input + ": " +
                           join(command, " ") + ": " + launchError + printed);
}

//===-- In this process ---------------------------------------------------===//

HostJit::HostJit() = default;
HostJit::~HostJit() = default;

Expected<std::unique_ptr<HostJit>> HostJit::create(mlir::ModuleOp module) {
  Expected<std::string> object = emitHostObject(module, "native");
  if (!object)
    return object.takeError();
  Expected<std::unique_ptr<orc::LLJIT>> jit = orc::LLJITBuilder().create();
  if (!jit)
    return jit.takeError();
  if (Error error = (*jit)->addObjectFile(
          MemoryBuffer::getMemBufferCopy(*object, "kdac.o")))
    return error;
  std::unique_ptr<HostJit> result(new HostJit());
  result->jit = std::move(*jit);
  for (auto function : module.getOps<mlir::LLVM::LLVMFuncOp>())
    if (auto bytes =
            function->getAttrOfType<mlir::IntegerAttr>("kdac.scratch_bytes"))
      result->scratchBytes[function.getName()] = bytes.getInt();
  return result;
}

Expected<JitKernel> HostJit::lookup(StringRef name) const {
  auto bytes = scratchBytes.find(name);
  if (bytes == scratchBytes.end())
    return createStringError("the module has no host kernel called '" + name +
                             "'");
  Expected<orc::ExecutorAddr> address = jit->lookup(name);
  if (!address)
    return address.takeError();
  return JitKernel{address->toPtr<HostEntry>(), bytes->second};
}

} // namespace kdac
