// Promises: one variant to its artefacts, or a sentence that says why not. Does
// not: write files, print, read the environment, or use more than one thread.
#ifndef KDAC_PIPELINE_COMPILE_H
#define KDAC_PIPELINE_COMPILE_H

#include "kdac/Pipeline/PackSpec.h"
#include "kdac/Target/Ptxas.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace kdac {

/// How artefacts are made.
struct CompileOptions {
  const Assembler *assembler = nullptr; ///< null: no cubins
  std::string keepDir; ///< where the PTX of a refused kernel stays
};

/// One compiled kernel: artefacts, and what a launch needs.
struct CompiledKernel {
  Variant variant;
  std::string entry;     ///< symbol in every artefact
  std::string schedule;  ///< the #tile.schedule attribute as text
  int64_t vTile = 0;     ///< columns of V of one program instance
  // GPU
  int64_t blockThreads = 1;
  int64_t sharedBytes = 0; ///< dynamic shared memory of a block
  std::string ptx;
  std::string ptxSha256;
  std::string cubin;                 ///< empty without an assembler
  std::optional<PtxasReport> report; ///< of the cubin
};

/// Compiles `job`. Errors: what a pass refused, with its reason; everything of
/// emitPtx and assemblePtx. Callable from several threads at once.
llvm::Expected<CompiledKernel> compileVariant(const CompileJob &job,
                                              const CompileOptions &options);

/// The IR of `job` at `stage` as text.
llvm::Expected<std::string> printStage(const CompileJob &job, Stage stage);

/// The PTX of `job`, a GPU variant.
llvm::Expected<std::string> printPtx(const CompileJob &job);

} // namespace kdac

#endif // KDAC_PIPELINE_COMPILE_H
