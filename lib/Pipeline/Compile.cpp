#include "kdac/Pipeline/Compile.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Ptx.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;

namespace kdac {

namespace {

/// A variant's module with its context, and the errors of what ran on it.
class Lowering {
public:
  explicit Lowering(const CompileJob &job)
      : job(job), context(registry(), mlir::MLIRContext::Threading::DISABLED),
        module(buildDplrModule(context, job.variant)) {}

  /// Runs the pipeline to `stage`.
  Error run(Stage stage);
  mlir::ModuleOp get() { return *module; }
  const Target &target() const { return *findTarget(job.variant.target); }
  Error failure(const Twine &text) const;

private:
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerKdacDialects(registry);
    return registry;
  }

  const CompileJob &job;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace

Error Lowering::failure(const Twine &text) const {
  return createStringError(inconvertibleErrorCode(),
                           variantName(job.variant) + ": " + text);
}

Error Lowering::run(Stage stage) {
  std::string errors;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          errors += (errors.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  if (mlir::failed(mlir::verify(*module)))
    return failure(errors);
  mlir::PassManager passes(&context);
  buildPipeline(passes, job.variant.target, stage, job.schedule);
  if (mlir::failed(passes.run(*module)))
    return failure(errors.empty() ? "the compiler failed without a reason"
                                  : StringRef(errors));
  return Error::success();
}

static std::string textOf(mlir::Attribute attribute) {
  std::string text;
  raw_string_ostream os(text);
  if (attribute)
    attribute.print(os);
  return text;
}

static std::string sha256(StringRef bytes) {
  return toHex(SHA256::hash(arrayRefFromStringRef(bytes)), /*LowerCase=*/true);
}

/// Reads what dplr-select-schedule and the exit wrote on the kernel.
static Error readLaunch(Lowering &lowering, CompiledKernel &kernel) {
  mlir::Operation *function = lowering.get().lookupSymbol(kernel.entry);
  if (!function)
    return lowering.failure("the exit left no function " + kernel.entry);
  auto read = [&](StringRef name, int64_t &value) {
    auto attribute = function->getAttrOfType<mlir::IntegerAttr>(name);
    if (attribute)
      value = attribute.getInt();
    return static_cast<bool>(attribute);
  };
  kernel.schedule = textOf(function->getAttr(tile::kScheduleAttr));
  bool complete = !kernel.schedule.empty() && read("kdac.v_tile", kernel.vTile);
  if (lowering.target().kind == TargetKind::Gpu)
    complete &= read("kdac.block_threads", kernel.blockThreads) &&
                read("kdac.shared_bytes", kernel.sharedBytes);
  return complete ? Error::success()
                  : lowering.failure("the exit left no launch attributes on " +
                                     kernel.entry);
}

const std::string *CompiledKernel::find(ImageKind kind) const {
  for (const Artefact &artefact : artefacts)
    if (artefact.kind == kind)
      return &artefact.bytes;
  return nullptr;
}

static Error compileGpu(Lowering &lowering, const CompileOptions &options,
                        CompiledKernel &kernel) {
  Expected<std::string> ptx = emitPtx(lowering.get(), lowering.target());
  if (!ptx)
    return lowering.failure(toString(ptx.takeError()));
  std::string arch = kernel.variant.target;
  kernel.ptxSha256 = sha256(*ptx);
  kernel.artefacts.push_back({ImageKind::Ptx, arch, "ptx", std::move(*ptx)});
  if (!options.assembler)
    return Error::success();
  Expected<Assembly> assembly =
      assemblePtx(*options.assembler, kernel.artefacts[0].bytes, kernel.entry,
                  lowering.target(), options.keepDir);
  if (!assembly)
    return lowering.failure(toString(assembly.takeError()));
  kernel.artefacts.push_back(
      {ImageKind::Cubin, arch, "cubin", std::move(assembly->cubin)});
  kernel.ptxasVersion = options.assembler->version;
  kernel.report = std::move(assembly->report);
  return Error::success();
}

Expected<CompiledKernel> compileVariant(const CompileJob &job,
                                        const CompileOptions &options) {
  CompiledKernel kernel;
  kernel.variant = job.variant;
  kernel.entry = entryName(job.variant);
  Lowering lowering(job);
  if (Error error = lowering.run(Stage::Llvm))
    return error;
  if (Error error = readLaunch(lowering, kernel))
    return error;
  if (Error error = compileGpu(lowering, options, kernel))
    return error;
  return kernel;
}

void addToPack(PackWriter &writer, const CompiledKernel &kernel) {
  Launch launch;
  launch.entry = kernel.entry;
  launch.args = launchArgs(kernel.variant);
  launch.grid = gridExpr(kernel.vTile);
  launch.blockThreads = kernel.blockThreads;
  launch.sharedBytes = kernel.sharedBytes;
  launch.scratchBytes = kernel.scratchBytes;
  if (kernel.report) {
    launch.registers = kernel.report->registers;
    launch.spillBytes =
        kernel.report->spillStoreBytes + kernel.report->spillLoadBytes;
  }
  launch.ptxSha256 = kernel.ptxSha256;
  for (const Artefact &artefact : kernel.artefacts)
    launch.images.push_back(
        writer.addImage(artefact.kind, artefact.arch, artefact.bytes));
  PackVariant entry;
  entry.variant = kernel.variant;
  entry.schedule = kernel.schedule;
  entry.llvmVersion = LLVM_VERSION_STRING;
  entry.ptxasVersion = kernel.ptxasVersion;
  entry.launches.push_back(std::move(launch));
  writer.add(std::move(entry));
}

Expected<std::string> printStage(const CompileJob &job, Stage stage) {
  Lowering lowering(job);
  if (Error error = lowering.run(stage))
    return error;
  std::string text;
  raw_string_ostream os(text);
  lowering.get().print(os);
  os << '\n';
  return text;
}

Expected<std::string> printPtx(const CompileJob &job) {
  Expected<CompiledKernel> kernel = compileVariant(job, {});
  if (!kernel)
    return kernel.takeError();
  return *kernel->find(ImageKind::Ptx);
}

} // namespace kdac
