// LLVM-dialect modules become PTX with the properties ptxas needs.
#include "kdac/Target/Ptx.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "gtest/gtest.h"

using namespace kdac;

namespace {

class Ptx : public testing::Test {
protected:
  void SetUp() override {
    mlir::DialectRegistry registry;
    registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect>();
    mlir::registerBuiltinDialectTranslation(registry);
    mlir::registerLLVMDialectTranslation(registry);
    mlir::registerNVVMDialectTranslation(registry);
    context.appendDialectRegistry(registry);
  }

  llvm::Expected<std::string> emit(llvm::StringRef text, const char *target) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    return emitPtx(*module, *findTarget(target));
  }

  mlir::MLIRContext context;
};

size_t count(const std::string &text, const std::string &needle) {
  size_t n = 0;
  for (size_t at = text.find(needle); at != std::string::npos;
       at = text.find(needle, at + 1))
    ++n;
  return n;
}

// Between two identical branches O3 duplicates an instruction that is not
// convergent into both arms.
constexpr char divergent[] = R"(
llvm.func @mine(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %zero = llvm.mlir.constant(0 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %first = llvm.icmp "eq" %tid, %zero : i32
  llvm.cond_br %first, ^a, ^b(%zero : i32)
^a:
  llvm.inline_asm has_side_effects "// before", "" : () -> ()
  llvm.br ^b(%one : i32)
^b(%x: i32):
  llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "" : () -> ()
  llvm.cond_br %first, ^c, ^d
^c:
  llvm.store %x, %out : i32, !llvm.ptr<1>
  llvm.br ^d
^d:
  llvm.return
})";

TEST_F(Ptx, InlineAssemblyIsConvergent) {
  auto ptx = emit(divergent, "sm_90a");
  ASSERT_TRUE(static_cast<bool>(ptx));
  EXPECT_EQ(count(*ptx, "wgmma.fence.sync.aligned"), 1u) << *ptx;
  EXPECT_EQ(count(*ptx, ".target sm_90a"), 1u);
  EXPECT_EQ(count(*ptx, ".version 8.6"), 1u);
}

constexpr char shared[] = R"(
llvm.mlir.global external @memory() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
llvm.func @mine(%out: !llvm.ptr<1>, %a: f32, %b: f32, %c: f32) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %base = llvm.mlir.addressof @memory : !llvm.ptr<3>
  %p = llvm.getelementptr %base[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
  %x = llvm.load %p : !llvm.ptr<3> -> f32
  %m = llvm.fmul %x, %a : f32
  %s = llvm.fadd %m, %b : f32
  llvm.store %s, %out : f32, !llvm.ptr<1>
  llvm.return
})";

TEST_F(Ptx, SharedPointersAre32BitAndProductsFuse) {
  auto ptx = emit(shared, "sm_80");
  ASSERT_TRUE(static_cast<bool>(ptx));
  EXPECT_EQ(count(*ptx, "fma.rn.f32"), 1u) << *ptx;
  size_t at = ptx->find("ld.shared");
  ASSERT_NE(at, std::string::npos);
  // A 64-bit address register would be %rd.
  EXPECT_EQ(ptx->substr(at, 40).find("[%rd"), std::string::npos) << *ptx;
}

TEST_F(Ptx, RepeatsItselfByteForByte) {
  auto first = emit(shared, "sm_120"), second = emit(shared, "sm_120");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
}

TEST_F(Ptx, RefusesTheHostTarget) {
  auto ptx = emit(shared, "host");
  ASSERT_FALSE(static_cast<bool>(ptx));
  EXPECT_EQ(llvm::toString(ptx.takeError()),
            "expected a GPU target for PTX, but got host");
}

} // namespace
