// Speed and correctness of one host kernel: compile time, GFLOP/s counted as
// 163,840 per token and head (chunk form, K = V = 128), and the ratio to
// OpenBLAS sgemm per core where that was found at build time.
#include "kdac/Passes.h"
#include "kdac/Pipeline/Pipeline.h"
#include "kdac/Reference/Case.h"
#include "kdac/Reference/Check.h"
#include "kdac/Target/Host.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cmath>
#include <dlfcn.h>
#include <fstream>

using namespace kdac;
namespace cl = llvm::cl;

static cl::opt<std::string> recurrence("recurrence", cl::init("kda"));
static cl::opt<std::string> form("form", cl::init("chunk"));
static cl::opt<std::string> gate("gate", cl::init("bounded"));
static cl::opt<std::string> dtype("dtype", cl::init("bf16"));
static cl::opt<int64_t> tokens("T", cl::init(4096));
static cl::opt<int64_t> heads("H", cl::init(8));
static cl::opt<int64_t> sequences("N", cl::init(1));
static cl::opt<int64_t> keyDim("K", cl::init(128));
static cl::opt<int64_t> valueDim("V", cl::init(128));
static cl::opt<int64_t> chunk("chunk", cl::init(0));
static cl::opt<int64_t> vTile("v-tile", cl::init(0));
static cl::opt<int64_t> width("vector-width", cl::init(0));
static cl::opt<std::string> cpu("cpu", cl::init("native"),
                                cl::desc("compile for this CPU"));
static cl::opt<int> threads("cores", cl::init(0));
static cl::opt<int> repeats("repeats", cl::init(7));
static cl::opt<bool> blas("blas", cl::init(true),
                          cl::desc("time OpenBLAS sgemm as well"));
static cl::opt<bool> verify("check", cl::desc("compare with the f64 oracle"));
static cl::opt<bool> dump("dump",
                          cl::desc("print the module in the LLVM dialect"));
static cl::opt<std::string> object("object", cl::desc("write the object here"));

static double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

template <typename F> static double best(F &&run) {
  run();
  double seconds = 1e30;
  for (int i = 0; i < repeats; ++i) {
    double start = now();
    run();
    seconds = std::min(seconds, now() - start);
  }
  return seconds;
}

#ifdef KDAC_HAVE_OPENBLAS
extern "C" void cblas_sgemm(int, int, int, int, int, int, float, const float *,
                            int, const float *, int, float, float *, int);
extern "C" void openblas_set_num_threads(int);

/// sgemm of 1024^3 on one core.
static double openblasGflops() {
  const int n = 1024;
  std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), c(n * n);
  openblas_set_num_threads(1);
  double seconds = best([&] {
    cblas_sgemm(101, 111, 111, n, n, n, 1, a.data(), n, b.data(), n, 0,
                c.data(), n);
  });
  return 2.0 * n * n * n / seconds / 1e9;
}
#endif

static std::optional<Variant> variantOfFlags() {
  Variant variant;
  variant.recurrence = recurrence;
  std::optional<Form> parsedForm = parseForm(form);
  std::optional<DType> parsedType = parseDType(dtype);
  if (!parsedForm || !parsedType) {
    llvm::errs() << "unknown form '" << form << "' or dtype '" << dtype
                 << "'\n";
    return std::nullopt;
  }
  variant.form = *parsedForm, variant.dtype = *parsedType;
  variant.keyDim = keyDim, variant.valueDim = valueDim;
  if (recurrence == "kda")
    variant.gate = parseGate(gate);
  if (std::optional<std::string> error = resolve(variant)) {
    llvm::errs() << *error << "\n";
    return std::nullopt;
  }
  return variant;
}

struct Compiled {
  std::unique_ptr<HostJit> jit;
  JitKernel kernel;
  int64_t vTile = 0;
};

/// The variant in the LLVM dialect, or null after a diagnostic.
static mlir::OwningOpRef<mlir::ModuleOp> lower(mlir::MLIRContext &context,
                                               const Variant &variant) {
  mlir::OwningOpRef<mlir::ModuleOp> module = buildDplrModule(context, variant);
  mlir::PassManager pm(&context);
  ScheduleOptions schedule;
  schedule.chunk = chunk, schedule.vTile = vTile;
  schedule.vectorWidth =
      width ? int64_t(width) : llvm::cantFail(hostVectorWidth(cpu));
  buildPipeline(pm, "host", Stage::Llvm, schedule);
  if (mlir::failed(pm.run(*module)))
    return nullptr;
  if (dump)
    module->print(llvm::outs());
  return module;
}

/// Code for a CPU that is not `native` goes through a shared object, which
/// stays loaded.
static llvm::Expected<HostEntry> loadObject(llvm::StringRef object,
                                            const std::string &name) {
  auto linker = findHostLinker({"/usr/lib/llvm-22/bin", "/usr/bin"});
  if (!linker)
    return linker.takeError();
  auto library = linkHostObject(object, *linker, "/tmp");
  if (!library)
    return library.takeError();
  std::string path = "/tmp/host_bench.so";
  std::ofstream(path, std::ios::binary) << *library;
  void *handle = dlopen(path.c_str(), RTLD_NOW);
  void *entry = handle ? dlsym(handle, name.c_str()) : nullptr;
  if (!entry)
    return llvm::createStringError(dlerror());
  return reinterpret_cast<HostEntry>(entry);
}

static llvm::Error generate(mlir::ModuleOp module, const std::string &name,
                            Compiled &result) {
  auto jit = HostJit::create(module);
  if (!jit)
    return jit.takeError();
  result.jit = std::move(*jit);
  auto kernel = result.jit->lookup(name);
  if (!kernel)
    return kernel.takeError();
  result.kernel = *kernel;
  if (cpu == "native" && object.empty())
    return llvm::Error::success();
  auto bytes = emitHostObject(module, cpu);
  if (!bytes)
    return bytes.takeError();
  if (!object.empty())
    std::ofstream(object, std::ios::binary) << *bytes;
  if (cpu == "native")
    return llvm::Error::success();
  auto entry = loadObject(*bytes, name);
  if (!entry)
    return entry.takeError();
  result.kernel.entry = *entry;
  return llvm::Error::success();
}

/// Compiles `variant`, printing how long the two halves took.
static std::optional<Compiled> compile(const Variant &variant) {
  double start = now();
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = lower(context, variant);
  if (!module)
    return std::nullopt;
  double lowered = now();
  Compiled result;
  if (llvm::Error error = generate(*module, entryName(variant), result)) {
    llvm::errs() << llvm::toString(std::move(error)) << "\n";
    return std::nullopt;
  }
  for (auto f : module->getOps<mlir::LLVM::LLVMFuncOp>())
    if (auto columns = f->getAttrOfType<mlir::IntegerAttr>("kdac.v_tile"))
      result.vTile = columns.getInt();
  llvm::outs() << llvm::format(
      "%s: passes %.0f ms, LLVM %.0f ms, scratch %lld bytes, v_tile %lld\n",
      variantName(variant).c_str(), (lowered - start) * 1e3,
      (now() - lowered) * 1e3, (long long)result.kernel.scratchBytes,
      (long long)result.vTile);
  return result;
}

static bool compareWithOracle(const Compiled &compiled,
                              reference::CaseSpec spec, HostPool &pool) {
  spec.tokens = std::min<int64_t>(spec.tokens, 300);
  reference::Case c = reference::makeCase(spec);
  reference::CheckResult result = reference::check(
      c, [&](reference::Case &c) -> std::optional<std::string> {
        if (pool.run(compiled.kernel.entry, c.argv(),
                     c.programs(compiled.vTile), compiled.kernel.scratchBytes))
          return std::nullopt;
        return "no memory for scratch";
      });
  llvm::outs() << reference::toString(result) << "\n";
  return result.passed();
}

/// The yardstick of the chunk form: the dense products of a 64-token chunk.
static double flops(const Variant &variant) {
  double k = variant.keyDim, v = variant.valueDim, c = 64;
  return 6 * k * v + 4 * c * v + 4 * c * k;
}

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "speed of one host kernel\n");
  std::optional<Variant> variant = variantOfFlags();
  if (!variant)
    return 2;
  std::optional<Compiled> compiled = compile(*variant);
  if (!compiled)
    return 1;
  HostPool pool(threads);
  reference::CaseSpec spec;
  spec.variant = *variant;
  spec.sequences = sequences, spec.tokens = tokens, spec.heads = heads;
  if (verify && !compareWithOracle(*compiled, spec, pool))
    return 1;
  reference::Case c = reference::makeCase(spec);
  void **args = c.argv();
  int64_t grid = c.programs(compiled->vTile);
  double seconds = best([&] {
    (void)pool.run(compiled->kernel.entry, args, grid,
                   compiled->kernel.scratchBytes);
  });
  double work = flops(*variant) * tokens * heads * sequences;
  double perCore = work / seconds / 1e9 / pool.threads();
  llvm::outs() << llvm::format("%.3f ms, %.1f GFLOP/s per core on %d threads",
                               seconds * 1e3, perCore, pool.threads());
#ifdef KDAC_HAVE_OPENBLAS
  if (blas) {
    double yardstick = openblasGflops();
    llvm::outs() << llvm::format(", OpenBLAS sgemm %.1f, ratio %.2f", yardstick,
                                 perCore / yardstick);
  }
#endif
  llvm::outs() << "\n";
  return 0;
}
