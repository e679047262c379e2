#include "HostKernel.h"

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
  auto jit = HostJit::create(module);
  if (!jit) {
    host.error = "JIT: " + llvm::toString(jit.takeError());
    return;
  }
  auto kernel = (*jit)->lookup(entry);
  if (!kernel) {
    host.error = "JIT: " + llvm::toString(kernel.takeError());
    return;
  }
  host.kernel = *kernel;
  if (host.variant.slots) {
    auto check = (*jit)->lookup(checkEntryName(host.variant));
    if (!check) {
      host.error = "JIT: " + llvm::toString(check.takeError());
      return;
    }
    host.check = check->entry;
  }
  host.jit = std::move(*jit);
}

} // namespace

HostVariant compileModule(ModuleOp module, Variant variant) {
  HostVariant host;
  host.variant = std::move(variant);
  compileInto(host, module, {});
  return host;
}

std::optional<std::string> HostVariant::run(Case &c) const {
  if (!error.empty())
    return error;
  if (check && c.find("status"))
    check(c.argv(), 0, 1, nullptr);
  if (!runOnHost(kernel.entry, c.argv(), c.programs(vTile),
                 kernel.scratchBytes))
    return "no memory for scratch";
  return std::nullopt;
}

std::optional<std::string> HostVariant::runRange(void **argv, int64_t begin,
                                                 int64_t end) const {
  if (!error.empty())
    return error;
  std::unique_ptr<std::byte[]> memory(new std::byte[kernel.scratchBytes + 64]);
  auto address = reinterpret_cast<uintptr_t>(memory.get());
  void *scratch = reinterpret_cast<void *>((address + 63) / 64 * 64);
  std::memset(scratch, 0xff, kernel.scratchBytes);
  kernel.entry(argv, begin, end, scratch);
  return std::nullopt;
}

std::optional<std::string> HostVariant::runBackwards(Case &c) const {
  for (int64_t i = c.programs(vTile); i-- > 0;)
    if (std::optional<std::string> failure = runRange(c.argv(), i, i + 1))
      return failure;
  return std::nullopt;
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
