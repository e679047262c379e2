// Promises: machine code of kernels lowered by tile-to-host: run in this
// process, or as an object file or shared object for a named CPU.
// Does not: choose the order of passes before tile-to-host, own threads
// (include/kdac/Runtime/HostLaunch.h does), or read the environment.
#ifndef KDAC_TARGET_HOST_H
#define KDAC_TARGET_HOST_H

#include "kdac/Runtime/HostLaunch.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llvm::orc {
class LLJIT;
} // namespace llvm::orc

namespace kdac {

/// Passes from the output of tile-to-host (scf, arith, math, vector, llvm) to
/// the LLVM dialect alone.
void buildHostLowering(mlir::OpPassManager &pm);

/// f32 lanes of the vectors that suit `cpu`, the `vector-width` of
/// tile-to-host: 16 with AVX-512, 8 with AVX2, else 4. `cpu` is one of
/// hostCpuNames.
llvm::Expected<int64_t> hostVectorWidth(llvm::StringRef cpu);

/// hostVectorWidth("native"), which cannot fail.
int64_t nativeVectorWidth();

/// "native, x86-64-v3, x86-64-v4, aarch64": `native` is the CPU this runs on.
std::string hostCpuNames();

/// An ELF object for `cpu`, optimised at O3, that refers to no other symbols.
/// `module` is in the LLVM dialect. Errors: an unknown CPU, or a module that
/// LLVM cannot translate, verify or select, in LLVM's own words.
llvm::Expected<std::string> emitHostObject(mlir::ModuleOp module,
                                           llvm::StringRef cpu);

/// A shared object made of `object` by `linker` (the path of ld.lld, or of a cc
/// driver). After an error the object stays in `keepDir`, and the error has its
/// path, the exact command and what the linker printed.
llvm::Expected<std::string> linkHostObject(llvm::StringRef object,
                                           llvm::StringRef linker,
                                           llvm::StringRef keepDir);

/// A linker for linkHostObject out of `directories`, in order: ld.lld, ld, cc.
/// The error names the places searched.
llvm::Expected<std::string>
findHostLinker(llvm::ArrayRef<std::string> directories);

/// One compiled kernel in this process; it lives as long as its HostJit.
struct JitKernel {
  HostEntry entry = nullptr;
  int64_t scratchBytes = 0; ///< per thread, aligned to 64
};

/// Kernels compiled for the CPU this runs on.
class HostJit {
public:
  /// Compiles every kernel of `module` (LLVM dialect, after buildHostLowering).
  static llvm::Expected<std::unique_ptr<HostJit>> create(mlir::ModuleOp module);
  ~HostJit();

  /// The kernel called `name`; an error when there is none.
  llvm::Expected<JitKernel> lookup(llvm::StringRef name) const;

private:
  HostJit();
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::StringMap<int64_t> scratchBytes;
};

} // namespace kdac

#endif // KDAC_TARGET_HOST_H
