#include "HostMachine.h"
#include "kdac/Target/Host.h"

#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

extern "C" {
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
}

using namespace llvm;

namespace kdac {

namespace {

/// What a user may ask for, and LLVM's words for it.
struct CpuRow {
  StringLiteral name, triple, cpu;
};

constexpr CpuRow kCpus[] = {
    {"x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3"},
    {"x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4"},
    {"aarch64", "aarch64-unknown-linux-gnu", "generic"},
};
constexpr StringLiteral kNative = "native";

void initializeBackends() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

/// "+avx2,-avx512f,..." of the CPU this runs on: its name alone may promise
/// more than a hypervisor lets through.
std::string nativeFeatures() {
  std::string text;
  for (const auto &feature : sys::getHostCPUFeatures())
    text += (text.empty() ? "" : ",") +
            ((feature.second ? "+" : "-") + feature.first()).str();
  return text;
}

} // namespace

std::string hostCpuNames() {
  std::string names = kNative.str();
  for (const CpuRow &row : kCpus)
    names += ", " + row.name.str();
  return names;
}

Expected<std::unique_ptr<TargetMachine>> createHostMachine(StringRef cpu) {
  initializeBackends();
  Triple triple(sys::getDefaultTargetTriple());
  std::string name = sys::getHostCPUName().str(), features;
  if (cpu == kNative) {
    features = nativeFeatures();
  } else {
    const CpuRow *row =
        find_if(kCpus, [&](const CpuRow &row) { return row.name == cpu; });
    if (row == std::end(kCpus))
      return createStringError("unknown host CPU '" + cpu +
                               "', expected one of " + hostCpuNames());
    triple = Triple(row->triple);
    name = row->cpu.str();
  }
  std::string error;
  const llvm::Target *backend = TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return createStringError("this LLVM has no backend for " + triple.str() +
                             ": " + error);
  std::unique_ptr<TargetMachine> machine(backend->createTargetMachine(
      triple, name, features, TargetOptions(), Reloc::PIC_, std::nullopt,
      CodeGenOptLevel::Aggressive));
  if (!machine)
    return createStringError("LLVM cannot describe the CPU " + name);
  return machine;
}

int64_t vectorWidth(const TargetMachine &machine) {
  const MCSubtargetInfo &info = *machine.getMCSubtargetInfo();
  if (!machine.getTargetTriple().isX86())
    return 4;
  if (info.checkFeatures("+avx512f,+avx512bw,+avx512dq,+avx512vl"))
    return 16;
  return info.checkFeatures("+avx2,+fma,+f16c") ? 8 : 4;
}

Expected<int64_t> hostVectorWidth(StringRef cpu) {
  Expected<std::unique_ptr<TargetMachine>> machine = createHostMachine(cpu);
  if (!machine)
    return machine.takeError();
  return vectorWidth(**machine);
}

int64_t nativeVectorWidth() {
  Expected<int64_t> width = hostVectorWidth(kNative);
  if (width)
    return *width;
  // Compilation will report the missing backend; any width does until then.
  consumeError(width.takeError());
  return 4;
}

} // namespace kdac
