#include "HostKernel.h"

#include "kdac/Runtime/Call.h"
#include "kdac/Runtime/HostLaunch.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"

#include "gtest/gtest.h"

#include <cstring>
#include <map>

using namespace mlir;

namespace kdac::reference {

namespace {

/// Collects diagnostics, so that a failed compilation says why.
class Complaints {
public:
  explicit Complaints(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) {
          text += (text.empty() ? "" : "; ") + diagnostic.str();
          return success();
        }) {}

  std::string text;

private:
  ScopedDiagnosticHandler handler;
};

void compileInto(HostVariant &host, ModuleOp module,
                 const ScheduleOptions &options) {
  MLIRContext &context = *module.getContext();
  Complaints complaints(context);
  PassManager pm(&context);
  buildPipeline(pm, host.variant.target, Stage::Llvm, options);
  if (failed(pm.run(module))) {
    host.error = "pipeline: " + complaints.text;
    return;
  }
  std::string entry = entryName(host.variant);
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(entry);
  auto vTile =
      function ? function->getAttrOfType<IntegerAttr>("kdac.v_tile") : nullptr;
  if (!vTile) {
    host.error = "no llvm.func " + entry + " with kdac.v_tile";
    return;
  }
  host.vTile = vTile.getInt();
  auto program = loadHere(module, host.variant);
  if (!program) {
    host.error = "JIT: " + llvm::toString(program.takeError());
    return;
  }
  host.program = std::move(*program);
  for (auto [launch, kernel] :
       llvm::zip(host.program.variant.launches, host.program.kernels))
    if (launch.entry == entry)
      host.kernel = kernel;
}

} // namespace

HostVariant compileModule(ModuleOp module, Variant variant) {
  HostVariant host;
  host.variant = std::move(variant);
  compileInto(host, module, {});
  return host;
}

std::optional<std::string> HostVariant::runLaunches(
    Case &c,
    llvm::function_ref<bool(const JitKernel &, int64_t)> launchOne) const {
  if (!error.empty())
    return error;
  StatusOr<int64_t> workspace = workspaceBytes(program.variant, c.argv());
  if (!workspace.ok())
    return workspace.status().message();
  c.provideWorkspace(*workspace);
  for (bool isSecond : {false, true}) {
    if (isSecond && !c.commits())
      break;
    c.commit(isSecond);
    StatusOr<std::vector<int64_t>> grids =
        gridsOf(program.variant, Processors(), c.argv());
    if (!grids.ok())
      return grids.status().message();
    for (auto [grid, each] : llvm::zip(*grids, program.kernels))
      if (!launchOne(each, grid))
        return "no memory for scratch";
  }
  c.commit(false);
  return std::nullopt;
}

std::optional<std::string> HostVariant::run(Case &c) const {
  return runLaunches(c, [&](const JitKernel &each, int64_t grid) {
    return runOnHost(each.entry, c.argv(), grid, each.scratchBytes);
  });
}

/// Runs instances [begin, end) in poisoned scratch memory.
static void runPoisoned(const JitKernel &kernel, void **argv, int64_t begin,
                        int64_t end) {
  std::unique_ptr<std::byte[]> memory(new std::byte[kernel.scratchBytes + 64]);
  auto address = reinterpret_cast<uintptr_t>(memory.get());
  void *scratch = reinterpret_cast<void *>((address + 63) / 64 * 64);
  std::memset(scratch, 0xff, kernel.scratchBytes);
  kernel.entry(argv, begin, end, scratch);
}

std::optional<std::string> HostVariant::runRange(void **argv, int64_t begin,
                                                 int64_t end) const {
  if (!error.empty())
    return error;
  runPoisoned(kernel, argv, begin, end);
  return std::nullopt;
}

std::optional<std::string> HostVariant::runBackwards(Case &c) const {
  return runLaunches(c, [&](const JitKernel &each, int64_t grid) {
    for (int64_t i = grid; i-- > 0;)
      runPoisoned(each, c.argv(), i, i + 1);
    return true;
  });
}

Runner HostVariant::runner() const {
  return [this](Case &c) { return run(c); };
}

const HostVariant &hostVariant(Variant variant,
                               const ScheduleOptions &options) {
  static std::map<std::string, HostVariant> compiled;
  std::string key = variantName(variant) + " " + std::to_string(options.chunk) +
                    " " + std::to_string(options.vTile);
  auto [entry, isNew] = compiled.try_emplace(key);
  if (isNew) {
    entry->second.variant = std::move(variant);
    DialectRegistry registry;
    registerKdacDialects(registry);
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    OwningOpRef<ModuleOp> module =
        buildDplrModule(context, entry->second.variant);
    compileInto(entry->second, *module, options);
  }
  return entry->second;
}

Variant resolved(Variant variant) {
  std::optional<std::string> error = resolve(variant);
  EXPECT_FALSE(error) << *error;
  return variant;
}

CheckResult expectCorrect(CaseSpec spec) {
  std::optional<std::string> error = validate(spec);
  EXPECT_FALSE(error) << *error;
  Case c = makeCase(std::move(spec));
  return expectCorrect(c);
}

CheckResult expectCorrect(Case &c) {
  CheckResult result = check(c, hostVariant(c.spec().variant).runner());
  EXPECT_TRUE(result.passed())
      << describe(c.spec()) << ": " << toString(result);
  return result;
}

} // namespace kdac::reference
