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

/// Compiles `variant`, printing how long the two halves took.
static std::optional<Compiled> compile(const Variant &variant) {
  double start = now();
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module = buildDplrModule(context, variant);
  mlir::PassManager pm(&context);
  ScheduleOptions schedule;
  schedule.chunk = chunk, schedule.vTile = vTile;
  schedule.vectorWidth = width;
  buildPipeline(pm, "host", Stage::Llvm, schedule);
  if (mlir::failed(pm.run(*module)))
    return std::nullopt;
  if (dump)
    module->print(llvm::outs());
  double lowered = now();
  if (!object.empty()) {
    std::error_code code;
    llvm::raw_fd_ostream(object, code)
        << llvm::cantFail(emitHostObject(*module, "native"));
  }
  double emitted = now();
  auto jit = HostJit::create(*module);
  if (!jit) {
    llvm::errs() << llvm::toString(jit.takeError()) << "\n";
    return std::nullopt;
  }
  Compiled result{std::move(*jit), {}, 0};
  result.kernel = llvm::cantFail(result.jit->lookup(entryName(variant)));
  for (auto f : module->getOps<mlir::LLVM::LLVMFuncOp>())
    if (auto columns = f->getAttrOfType<mlir::IntegerAttr>("kdac.v_tile"))
      result.vTile = columns.getInt();
  llvm::outs() << llvm::format(
      "%s: passes %.0f ms, LLVM %.0f ms, scratch %lld bytes, v_tile %lld\n",
      variantName(variant).c_str(), (lowered - start) * 1e3,
      (now() - emitted) * 1e3, (long long)result.kernel.scratchBytes,
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
