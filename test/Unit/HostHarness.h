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

/// Lowers the tile kernels of `text` for the native CPU; null after an error,
/// which has been printed.
inline std::unique_ptr<HostJit> compileTile(const std::string &text) {
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return nullptr;
  mlir::PassManager pm(&context);
  TileToHostPassOptions options;
  options.vectorWidth = llvm::cantFail(hostVectorWidth("native"));
  pm.addPass(createTileToHostPass(options));
  buildHostLowering(pm);
  if (mlir::failed(pm.run(*module)))
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
  explicit TileKernel(const std::string &text) : jit(compileTile(text)) {
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

} // namespace kdac::test

#endif // KDAC_TEST_UNIT_HOSTHARNESS_H
