#include "kdac/Target/Host.h"
#include "Codegen.h"
#include "HostMachine.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

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

/// Attributes that LLVM has no other place for.
static void addAttributes(Module &module, const TargetMachine &machine) {
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

Expected<std::string> emitHostObject(mlir::ModuleOp module, StringRef cpu) {
  Expected<std::unique_ptr<TargetMachine>> machine = createHostMachine(cpu);
  if (!machine)
    return machine.takeError();
  PipelineTuningOptions tuning;
  // Kernels come as vector code with the unrolling they want; more of it costs
  // half of the compile time for 2 % of speed.
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  return generateCode(module, **machine,
                      {CodeGenFileType::ObjectFile, tuning,
                       [&](Module &ir) { addAttributes(ir, **machine); }});
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
