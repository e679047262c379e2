// Host code as objects, shared objects and launches.
#include "HostHarness.h"
#include "HostValues.h"

#include <gtest/gtest.h>

#include "llvm/Object/ELFObjectFile.h"

#include <dlfcn.h>
#include <fstream>

using namespace kdac::test;

namespace {

constexpr char kInverseText[] = R"(
func.func @f(%p: !tile.ref<f16>, %o: !tile.ref<bf16>, %n: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %x = tile.load %p[%z] stride %n valid [%n, %n] transposed align 4 : !tile.ref<f16> -> tensor<32x32xf16>
  %l = arith.extf %x : tensor<32x32xf16> to tensor<32x32xf32>
  %y = tile.unit_tril_inverse %l : tensor<32x32xf32>
  %e = math.exp2 %y : tensor<32x32xf32>
  %r = arith.truncf %e : tensor<32x32xf32> to tensor<32x32xbf16>
  tile.store %r, %o[%z] stride %n valid [%n, %n] align 4 : tensor<32x32xbf16>, !tile.ref<bf16>
  return
})";

TEST(Launch, RunsEveryInstanceOnce) {
  TileKernel kernel(mathText("math.absf"));
  ASSERT_TRUE(kernel.ok());
  auto jit = compileTile(mathText("math.absf"));
  ASSERT_TRUE(jit);
  kdac::JitKernel f = llvm::cantFail(jit->lookup("f"));
  const int64_t n = 16 * 1000 - 3;
  Floats x = random(n, 41), out(n + 3, kPoison);
  void *px = x.data(), *po = out.data();
  int64_t size = n;
  void *args[] = {&px, &po, &size};
  kdac::HostPool pool(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::fill(out.begin(), out.end(), kPoison);
    ASSERT_TRUE(pool.run(f.entry, args, 1000, f.scratchBytes));
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], std::fabs(x[i]));
    for (int64_t i = n; i < n + 3; ++i)
      ASSERT_EQ(out[i], kPoison);
  }
}

//===-- Objects -----------------------------------------------------------===//

TEST(Host, UnknownNamesAreErrors) {
  auto width = kdac::hostVectorWidth("pentium");
  ASSERT_FALSE(bool(width));
  EXPECT_EQ(llvm::toString(width.takeError()),
            "unknown host CPU 'pentium', expected one of native, x86-64-v3, "
            "x86-64-v4, aarch64");
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("x86-64-v3")), 8);
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("x86-64-v4")), 16);
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("aarch64")), 4);
  auto jit = compileTile(mathText("math.absf"));
  ASSERT_TRUE(jit);
  auto missing = jit->lookup("g");
  ASSERT_FALSE(bool(missing));
  EXPECT_EQ(llvm::toString(missing.takeError()),
            "the module has no host kernel called 'g'");
}

std::string objectFor(const std::string &text, const char *cpu) {
  auto context = makeContext();
  int64_t width = llvm::cantFail(kdac::hostVectorWidth(cpu));
  auto module = lowerTile(*context, text, width);
  return module ? llvm::cantFail(kdac::emitHostObject(*module, cpu)) : "";
}

/// Every CPU gets an ELF object of its machine that needs no other symbol.
TEST(Host, ObjectsNeedNothing) {
  std::pair<const char *, unsigned> cpus[] = {
      {"x86-64-v3", 62}, {"x86-64-v4", 62}, {"aarch64", 183}};
  for (auto [cpu, machine] : cpus) {
    std::string bytes = objectFor(kInverseText, cpu);
    auto file = llvm::object::ObjectFile::createELFObjectFile(
        llvm::MemoryBufferRef(bytes, cpu));
    ASSERT_TRUE(bool(file)) << cpu;
    auto *elf = llvm::cast<llvm::object::ELFObjectFileBase>(file->get());
    EXPECT_EQ(elf->getEMachine(), machine);
    for (const llvm::object::ELFSymbolRef &symbol : elf->symbols()) {
      bool undefined = llvm::cantFail(symbol.getFlags()) &
                       llvm::object::SymbolRef::SF_Undefined;
      llvm::StringRef name = llvm::cantFail(symbol.getName());
      EXPECT_FALSE(undefined && !name.empty()) << cpu << " " << name.str();
    }
  }
}

/// Compiled for AVX2, linked, loaded, run.
TEST(Host, SharedObjectRuns) {
  std::string object = objectFor(mathText("math.exp2"), "x86-64-v3");
  ASSERT_FALSE(object.empty());
  auto linker = kdac::findHostLinker({"/usr/lib/llvm-22/bin", "/usr/bin"});
  ASSERT_TRUE(bool(linker));
  auto bytes = kdac::linkHostObject(object, *linker, testing::TempDir());
  ASSERT_TRUE(bool(bytes)) << llvm::toString(bytes.takeError());
  std::string path = testing::TempDir() + "kdac_host_exit_test.so";
  std::ofstream(path, std::ios::binary) << *bytes;
  void *library = dlopen(path.c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto entry = reinterpret_cast<kdac::HostEntry>(dlsym(library, "f"));
  ASSERT_NE(entry, nullptr);
  Floats x = random(16, 51, -20, 20), out(16);
  void *px = x.data(), *po = out.data();
  int64_t size = 16;
  void *args[] = {&px, &po, &size};
  ASSERT_TRUE(kdac::runOnHost(entry, args, 1, 64));
  for (int i = 0; i < 16; ++i)
    EXPECT_LT(ulps(out[i], std::exp2(double(x[i]))), 1.2);
  dlclose(library);
  std::remove(path.c_str());
}

TEST(Host, LinkerFailuresSayHowToReproduce) {
  auto none = kdac::findHostLinker({"/nonexistent"});
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(llvm::toString(none.takeError()),
            "no linker for host objects: looked for ld.lld, ld and cc in "
            "/nonexistent");
  auto linker = kdac::findHostLinker({"/usr/lib/llvm-22/bin", "/usr/bin"});
  ASSERT_TRUE(bool(linker));
  auto bytes = kdac::linkHostObject("no object", *linker, testing::TempDir());
  ASSERT_FALSE(bool(bytes));
  std::string message = llvm::toString(bytes.takeError());
  EXPECT_NE(message.find(" -shared -o "), std::string::npos) << message;
  size_t at = message.find("failed on ") + 10;
  std::string kept = message.substr(at, message.find(": ", at) - at);
  EXPECT_EQ(std::remove(kept.c_str()), 0) << kept;
}

} // namespace
