#include "kdac/Pipeline/Compile.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Target/Ptx.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
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
  explicit Lowering(CompileJob job)
      : job(std::move(job)),
        context(registry(), mlir::MLIRContext::Threading::DISABLED),
        module(buildDplrModule(context, this->job.variant)) {}

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

  CompileJob job;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace

static Error failureOf(const Variant &variant, const Twine &text) {
  return createStringError(inconvertibleErrorCode(),
                           variantName(variant) + ": " + text);
}

Error Lowering::failure(const Twine &text) const {
  return failureOf(job.variant, text);
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
  buildPipeline(passes, job.variant.target, stage, job.schedule, job.abi);
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

/// Reads what the passes wrote on one function of the kernel.
static Error readLaunch(mlir::LLVM::LLVMFuncOp function,
                        CompiledKernel &kernel) {
  CompiledLaunch launch;
  launch.entry = function.getName().str();
  auto read = [&](StringRef name, int64_t &value) {
    auto attribute = function->getAttrOfType<mlir::IntegerAttr>(name);
    if (attribute)
      value = attribute.getInt();
    return static_cast<bool>(attribute);
  };
  std::string schedule = textOf(function->getAttr("kdac.schedule"));
  if (schedule.empty())
    schedule = textOf(function->getAttr(tile::kScheduleAttr));
  if (kernel.schedule.empty() && !function->hasAttr(tile::kBesideAttr))
    kernel.schedule = schedule;
  bool complete = !schedule.empty() && read("kdac.v_tile", kernel.vTile);
  int64_t scratch = 0;
  if (findTarget(kernel.variant.target)->kind == TargetKind::Gpu)
    complete &= read("kdac.block_threads", launch.blockThreads) &&
                read("kdac.shared_bytes", launch.sharedBytes);
  else
    complete &= read("kdac.scratch_bytes", scratch);
  if (!complete)
    return failureOf(kernel.variant,
                     "the exit left no launch attributes on " + launch.entry);
  kernel.scratchBytes = std::max(kernel.scratchBytes, scratch);
  auto text = [&](StringRef name, std::string otherwise) {
    auto attribute = function->getAttrOfType<mlir::StringAttr>(name);
    return attribute ? attribute.str() : otherwise;
  };
  launch.grid = text("kdac.grid", gridExpr(kernel.vTile));
  launch.when = text("kdac.when", "");
  launch.abi = parseLaunchAbi(text("kdac.abi", "bare")).value();
  launch.overlaps = function->hasAttr("kdac.overlaps");
  launch.waits = function->hasAttr(tile::kWaitsAttr);
  launch.usesWorkspace = function->hasAttr("kdac.workspace");
  if (auto sizes = function->getAttrOfType<mlir::ArrayAttr>("kdac.sizes")) {
    kernel.sizes.clear();
    for (auto size : sizes.getAsRange<mlir::StringAttr>()) {
      auto [name, value] = size.getValue().split(" = ");
      kernel.sizes.emplace_back(name.str(), value.str());
    }
  }
  kernel.workspace = text("kdac.workspace", kernel.workspace);
  kernel.launches.push_back(std::move(launch));
  return Error::success();
}

/// The functions of the kernel are its launches, in order.
static Error readLaunches(mlir::ModuleOp module, CompiledKernel &kernel) {
  kernel.launches.clear();
  for (auto function : module.getOps<mlir::LLVM::LLVMFuncOp>()) {
    if (function.isExternal())
      continue;
    if (Error error = readLaunch(function, kernel))
      return error;
  }
  if (kernel.launches.empty())
    return failureOf(kernel.variant, "the exit left no kernel");
  return Error::success();
}

const std::string *CompiledKernel::find(ImageKind kind) const {
  for (const Artefact &artefact : artefacts)
    if (artefact.kind == kind)
      return &artefact.bytes;
  return nullptr;
}

/// Runs the whole pipeline and reads what a launch needs.
static Error lower(Lowering &lowering, CompiledKernel &kernel) {
  if (Error error = lowering.run(Stage::Llvm))
    return error;
  return readLaunches(lowering.get(), kernel);
}

static Error assemble(Lowering &lowering, const CompileOptions &options,
                      CompiledKernel &kernel, std::string &unfit) {
  std::vector<std::string> entries;
  for (const CompiledLaunch &launch : kernel.launches)
    entries.push_back(launch.entry);
  Expected<Assembly> assembly =
      assemblePtx(*options.assembler, *kernel.find(ImageKind::Ptx), entries,
                  lowering.target(), options.keepDir, &unfit);
  if (!assembly)
    return lowering.failure(toString(assembly.takeError()));
  kernel.artefacts.push_back({ImageKind::Cubin, kernel.variant.target, "cubin",
                              std::move(assembly->cubin)});
  kernel.ptxasVersion = options.assembler->version;
  for (auto [launch, report] : zip(kernel.launches, assembly->reports))
    launch.report = std::move(report);
  return Error::success();
}

/// `unfit`: the kernel that ptxas assembles badly, if one is why this fails.
static Error compileGpuOnce(const CompileJob &job,
                            const CompileOptions &options,
                            CompiledKernel &kernel, std::string &unfit) {
  Lowering lowering(job);
  if (Error error = lower(lowering, kernel))
    return error;
  Expected<std::string> ptx = emitPtx(lowering.get(), lowering.target());
  if (!ptx)
    return lowering.failure(toString(ptx.takeError()));
  kernel.ptxSha256 = sha256(*ptx);
  kernel.artefacts.push_back(
      {ImageKind::Ptx, job.variant.target, "ptx", std::move(*ptx)});
  return options.assembler ? assemble(lowering, options, kernel, unfit)
                           : Error::success();
}

/// What `job` is tried with in turn: a chunk kernel that was free to choose its
/// roles has them as warps without assistants and clusters, is split and at
/// last fused, which divide its values otherwise.
static std::vector<std::string> rolesToTry(const CompileJob &job) {
  std::vector<std::string> list = {job.schedule.roles};
  if (job.variant.form == Form::Chunk && list[0].empty())
    list.insert(list.end(), {"warps", "split", "fused"});
  return list;
}

/// The line of an error that says why, without the variant's name.
static std::string reasonOf(const CompileJob &job, StringRef error) {
  StringRef line = error.split('\n').first;
  line.consume_front(variantName(job.variant) + ": ");
  return line.str();
}

/// Compiles `job`, each kernel that ptxas spills with another count of blocks:
/// ptxas chooses registers by how many blocks it thinks should share an SM, and
/// now and then spills a few bytes at one count but not at another. The other
/// kernels keep theirs.
static Error compileWithBlocks(CompileJob job, const CompileOptions &options,
                               CompiledKernel &kernel) {
  static constexpr std::pair<int64_t, const char *> counts[] = {
      {-1, "any number of blocks"}, {1, "1 block"}, {2, "2 blocks"}};
  std::map<std::string, size_t> tried;
  for (;;) {
    CompiledKernel attempt = kernel;
    std::string unfit;
    Error error = compileGpuOnce(job, options, attempt, unfit);
    bool isLast = unfit.empty() || tried[unfit] == std::size(counts);
    if (!error || isLast) {
      kernel = std::move(attempt);
      return error;
    }
    auto [blocks, text] = counts[tried[unfit]++];
    job.schedule.minBlocksOf[unfit] = blocks;
    kernel.retries.push_back(reasonOf(job, toString(std::move(error))) +
                             "; tried with " + text + " an SM");
  }
}

static Error compileGpu(const CompileJob &job, const CompileOptions &options,
                        CompiledKernel &kernel) {
  std::string refused; // by the first roles
  std::vector<std::string> roles = rolesToTry(job);
  for (size_t i = 0; i < roles.size(); ++i) {
    CompileJob again = job;
    again.schedule.roles = roles[i];
    CompiledKernel attempt = kernel;
    Error error = compileWithBlocks(again, options, attempt);
    bool isAssemblers = options.assembler && !attempt.ptxSha256.empty();
    if (!error || (i == 0 && !isAssemblers)) {
      kernel = std::move(attempt);
      return error;
    }
    std::string text = toString(std::move(error));
    kernel.retries = std::move(attempt.retries);
    if (i + 1 < roles.size())
      kernel.retries.push_back(reasonOf(job, text) +
                               "; tried with --roles=" + roles[i + 1]);
    if (i == 0)
      refused = std::move(text);
  }
  return createStringError(inconvertibleErrorCode(), refused);
}

/// `job` with the vectors that suit `cpu`.
static Expected<CompileJob> jobFor(const CompileJob &job, StringRef cpu) {
  Expected<int64_t> width = hostVectorWidth(cpu);
  if (!width)
    return width.takeError();
  CompileJob result = job;
  result.schedule.vectorWidth = *width;
  return result;
}

/// One shared object for `cpu`.
static Error compileHost(const CompileJob &job, StringRef cpu,
                         const CompileOptions &options,
                         CompiledKernel &kernel) {
  Expected<CompileJob> suited = jobFor(job, cpu);
  if (!suited)
    return suited.takeError();
  Lowering lowering(*suited);
  if (Error error = lower(lowering, kernel))
    return error;
  Expected<std::string> object = emitHostObject(lowering.get(), cpu);
  if (!object)
    return lowering.failure(toString(object.takeError()));
  Expected<std::string> library =
      linkHostObject(*object, options.linker, options.keepDir);
  if (!library)
    return lowering.failure(toString(library.takeError()));
  kernel.artefacts.push_back(
      {ImageKind::HostSo, cpu.str(), cpu.str() + ".so", std::move(*library)});
  return Error::success();
}

Expected<CompiledKernel> compileVariant(const CompileJob &job,
                                        const CompileOptions &options) {
  CompiledKernel kernel;
  kernel.variant = job.variant;
  if (findTarget(job.variant.target)->kind == TargetKind::Gpu) {
    if (Error error = compileGpu(job, options, kernel))
      return error;
    return kernel;
  }
  for (const std::string &cpu : options.hostCpus)
    if (Error error = compileHost(job, cpu, options, kernel))
      return error;
  return kernel;
}

Expected<HostProgram> compileHere(const CompileJob &job) {
  Expected<CompileJob> suited = jobFor(job, "native");
  if (!suited)
    return suited.takeError();
  Lowering lowering(*suited);
  if (Error error = lowering.run(Stage::Llvm))
    return error;
  return loadHere(lowering.get(), job.variant);
}

Expected<HostProgram> loadHere(mlir::ModuleOp module, const Variant &variant) {
  CompiledKernel kernel;
  kernel.variant = variant;
  if (Error error = readLaunches(module, kernel))
    return error;
  Expected<std::unique_ptr<HostJit>> jit = HostJit::create(module);
  if (!jit)
    return failureOf(variant, toString(jit.takeError()));
  HostProgram program{std::move(*jit), packVariant(kernel), {}};
  for (const Launch &launch : program.variant.launches) {
    Expected<JitKernel> entry = program.jit->lookup(launch.entry);
    if (!entry)
      return failureOf(variant, toString(entry.takeError()));
    program.kernels.push_back(*entry);
  }
  return program;
}

PackVariant packVariant(const CompiledKernel &kernel) {
  PackVariant entry;
  entry.variant = kernel.variant;
  entry.schedule = kernel.schedule;
  entry.llvmVersion = LLVM_VERSION_STRING;
  entry.ptxasVersion = kernel.ptxasVersion;
  entry.workspace = kernel.workspace;
  entry.sizes = kernel.sizes;
  for (const CompiledLaunch &compiled : kernel.launches) {
    Launch launch;
    launch.entry = compiled.entry;
    launch.args = launchArgs(kernel.variant);
    launch.abi = compiled.abi;
    launch.grid = compiled.grid;
    launch.when = compiled.when;
    launch.usesWorkspace = compiled.usesWorkspace;
    launch.overlaps = compiled.overlaps;
    launch.waits = compiled.waits;
    launch.blockThreads = compiled.blockThreads;
    launch.sharedBytes = compiled.sharedBytes;
    launch.scratchBytes = kernel.scratchBytes;
    if (compiled.report) {
      launch.registers = compiled.report->registers;
      launch.spillBytes =
          compiled.report->spillStoreBytes + compiled.report->spillLoadBytes;
    }
    launch.ptxSha256 = kernel.ptxSha256;
    entry.launches.push_back(std::move(launch));
  }
  return entry;
}

void addToPack(PackWriter &writer, const CompiledKernel &kernel) {
  PackVariant entry = packVariant(kernel);
  std::vector<size_t> images;
  for (const Artefact &artefact : kernel.artefacts)
    images.push_back(
        writer.addImage(artefact.kind, artefact.arch, artefact.bytes));
  for (Launch &launch : entry.launches)
    launch.images = images;
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
