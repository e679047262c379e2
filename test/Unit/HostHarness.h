// Promises: a tile kernel given as text, compiled by the host exit and callable
// on vectors of floats. Does not: check results.
#ifndef KDAC_TEST_UNIT_HOSTHARNESS_H
#define KDAC_TEST_UNIT_HOSTHARNESS_H

#include "kdac/Passes.h"
#include "kdac/Pipeline/Pipeline.h"
#include "kdac/Target/Host.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <string>
#include <vector>

namespace kdac::test {

/// A context with kdac's dialects, on one thread.
inline std::unique_ptr<mlir::MLIRContext> makeContext() {
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  return std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
}

/// The tile kernels of `text` in the LLVM dialect, for vectors of `width`; null
/// after an error, which has been printed.
inline mlir::OwningOpRef<mlir::ModuleOp>
lowerTile(mlir::MLIRContext &context, const std::string &text, int64_t width) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return nullptr;
  mlir::PassManager pm(&context);
  TileToHostPassOptions options;
  options.vectorWidth = width;
  pm.addPass(createTileToHostPass(options));
  buildHostLowering(pm);
  if (mlir::failed(pm.run(*module)))
    return nullptr;
  return module;
}

/// Machine code for this CPU; `width` 0 takes its own.
inline std::unique_ptr<HostJit> compileTile(const std::string &text,
                                            int64_t width = 0) {
  auto context = makeContext();
  auto module = lowerTile(*context, text, width ? width : nativeVectorWidth());
  if (!module)
    return nullptr;
  auto jit = HostJit::create(*module);
  if (jit)
    return std::move(*jit);
  llvm::errs() << llvm::toString(jit.takeError()) << "\n";
  return nullptr;
}

/// The kernel @f of a module, with arguments of any type.
class TileKernel {
public:
  explicit TileKernel(const std::string &text, int64_t width = 0)
      : jit(compileTile(text, width)) {
    if (!jit)
      return;
    auto found = jit->lookup("f");
    if (found)
      kernel = *found;
    else
      llvm::errs() << llvm::toString(found.takeError()) << "\n";
  }

  bool ok() const { return kernel.entry != nullptr; }
  int64_t scratchBytes() const { return kernel.scratchBytes; }

  /// Runs `grid` instances on one thread, in poisoned scratch. A vector is
  /// passed as its data, a null pointer as absent, numbers by value.
  template <typename... Args> void run(int64_t grid, Args &&...args) {
    std::vector<void *> pointers;
    std::vector<std::vector<char>> values;
    values.reserve(sizeof...(Args));
    (values.push_back(bytesOf(args)), ...);
    for (std::vector<char> &value : values)
      pointers.push_back(value.data());
    size_t bytes = (kernel.scratchBytes + 64 + 63) / 64 * 64;
    void *scratch = std::aligned_alloc(64, bytes);
    std::memset(scratch, 0xff, bytes);
    kernel.entry(pointers.data(), 0, grid, scratch);
    std::free(scratch);
  }

private:
  template <typename T> static std::vector<char> pack(T value) {
    std::vector<char> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  template <typename T> static std::vector<char> bytesOf(std::vector<T> &v) {
    return pack(v.data());
  }
  static std::vector<char> bytesOf(std::nullptr_t) {
    return pack<void *>(nullptr);
  }
  static std::vector<char> bytesOf(int64_t value) { return pack(value); }
  static std::vector<char> bytesOf(int value) { return pack<int64_t>(value); }
  static std::vector<char> bytesOf(float value) { return pack(value); }
  template <typename T> static std::vector<char> bytesOf(T *pointer) {
    return pack(pointer);
  }

  std::unique_ptr<HostJit> jit;
  JitKernel kernel;
};

/// Replaces every `$name$` by its value.
inline std::string
fill(std::string text,
     std::vector<std::pair<std::string, std::string>> values) {
  for (auto &[name, value] : values)
    for (size_t at; (at = text.find("$" + name + "$")) != std::string::npos;)
      text.replace(at, name.size() + 2, value);
  return text;
}

/// out[i] = op(in[i]) for i < n, 16 elements per instance.
inline std::string mathText(const char *op) {
  return fill(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %n: index) attributes {tile.kernel} {
  %id = tile.program_id : index
  %c = arith.constant 16 : index
  %one = arith.constant 1 : index
  %at = arith.muli %id, %c : index
  %left = arith.subi %n, %at : index
  %x = tile.load %p[%at] stride %one valid [%left] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = $op$ %x : tensor<16xf32>
  tile.store %y, %o[%at] stride %one valid [%left] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
})",
              {{"op", op}});
}

} // namespace kdac::test

#endif // KDAC_TEST_UNIT_HOSTHARNESS_H
