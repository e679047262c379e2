// Promises: one variant to its artefacts, or a sentence that says why not. Does
// not: write files, print, read the environment, or use more than one thread.
#ifndef KDAC_PIPELINE_COMPILE_H
#define KDAC_PIPELINE_COMPILE_H

#include "kdac/Pack/PackWriter.h"
#include "kdac/Pipeline/PackSpec.h"
#include "kdac/Target/Host.h"
#include "kdac/Target/Ptxas.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace kdac {

/// How artefacts are made.
struct CompileOptions {
  const Assembler *assembler = nullptr; ///< GPU; null: no cubins
  /// Host: CPUs out of hostCpuNames(), one shared object each.
  std::vector<std::string> hostCpus = {"x86-64-v3", "x86-64-v4", "aarch64"};
  std::string linker;  ///< host: what linkHostObject takes
  std::string keepDir; ///< where the input of a tool that failed stays
};

/// One image of a kernel.
struct Artefact {
  ImageKind kind;
  std::string arch;   ///< sm_90a, x86-64-v3, ...
  std::string suffix; ///< of a loose file: ptx, cubin, x86-64-v3.so
  std::string bytes;
};

/// One launch of a compiled kernel.
struct CompiledLaunch {
  std::string entry; ///< symbol in every artefact
  std::string grid;  ///< size expression
  std::string when;  ///< size expression, or empty
  bool usesWorkspace = false;
  bool overlaps = false; ///< as Launch::overlaps
  // GPU
  LaunchAbi abi = LaunchAbi::Bare;
  int64_t blockThreads = 1;
  int64_t sharedBytes = 0;           ///< dynamic shared memory of a block
  bool waits = false;                ///< for kernels ahead of it, by itself
  std::optional<PtxasReport> report; ///< of the cubin
};

/// One compiled kernel: artefacts, and what a launch needs.
struct CompiledKernel {
  Variant variant;
  std::string schedule;  ///< the #tile.schedule attribute as text
  std::string workspace; ///< bytes as a size expression, or empty
  NamedSizes sizes;      ///< what its size expressions call by name
  int64_t vTile = 0;     ///< columns of V of one program instance
  std::vector<CompiledLaunch> launches; ///< in order
  std::vector<Artefact> artefacts;
  // GPU
  std::string ptxSha256;
  std::string ptxasVersion; ///< empty without an assembler
  /// What ptxas did not do well, and what was tried then: a line each.
  std::vector<std::string> retries;
  // host
  int64_t scratchBytes = 0; ///< 64-byte aligned, per thread

  /// The bytes of the first artefact of a kind, or null.
  const std::string *find(ImageKind kind) const;
};

/// Compiles `job`. Errors: what a pass refused, with its reason; everything of
/// emitPtx and assemblePtx. Callable from several threads at once.
llvm::Expected<CompiledKernel> compileVariant(const CompileJob &job,
                                              const CompileOptions &options);

/// A kernel as a manifest has it, without images.
PackVariant packVariant(const CompiledKernel &kernel);

/// Adds a kernel with its artefacts and its launches to a pack.
void addToPack(PackWriter &writer, const CompiledKernel &kernel);

/// The IR of `job` at `stage` as text.
llvm::Expected<std::string> printStage(const CompileJob &job, Stage stage);

/// A host variant in this process.
struct HostProgram {
  std::unique_ptr<HostJit> jit;
  PackVariant variant;            ///< without images
  std::vector<JitKernel> kernels; ///< one a launch; they live as long as `jit`
};

/// Compiles `job`, a host variant, for the CPU this runs on.
llvm::Expected<HostProgram> compileHere(const CompileJob &job);

/// The kernels of a module in the LLVM dialect, after the host exit, as those
/// of `variant`.
llvm::Expected<HostProgram> loadHere(mlir::ModuleOp module,
                                     const Variant &variant);

/// The PTX of `job`, a GPU variant.
llvm::Expected<std::string> printPtx(const CompileJob &job);

} // namespace kdac

#endif // KDAC_PIPELINE_COMPILE_H
