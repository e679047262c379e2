// Triton's launch ABI on kernels that are lowered otherwise.
#include "kdac/Passes.h"
#include "kdac/Variant/LaunchAbi.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILETRITONABIPASS
#include "kdac/Passes.h.inc"

namespace {

/// insertArgument cannot: it knows no functions without a result.
void append(LLVM::LLVMFuncOp kernel, Type type) {
  size_t count = scratchParameters(LaunchAbi::Triton);
  auto before = kernel.getFunctionType();
  SmallVector<Type> parameters(before.getParams());
  parameters.append(count, type);
  if (ArrayAttr attributes = kernel.getArgAttrsAttr()) {
    SmallVector<Attribute> all(attributes.begin(), attributes.end());
    all.append(count, DictionaryAttr::get(kernel.getContext()));
    kernel.setArgAttrsAttr(ArrayAttr::get(kernel.getContext(), all));
  }
  kernel.setFunctionType(
      LLVM::LLVMFunctionType::get(before.getReturnType(), parameters));
  for (size_t i = 0; i < count; ++i)
    kernel.getBody().addArgument(type, kernel.getLoc());
}

struct TileTritonAbiPass : impl::TileTritonAbiPassBase<TileTritonAbiPass> {
  void runOnOperation() override {
    Type pointer = LLVM::LLVMPointerType::get(&getContext(), /*global=*/1);
    for (auto kernel : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      if (!kernel->hasAttr("nvvm.kernel") || kernel.isExternal())
        continue;
      append(kernel, pointer);
      kernel->setAttr("kdac.abi",
                      StringAttr::get(&getContext(), spell(LaunchAbi::Triton)));
    }
  }
};

} // namespace
} // namespace kdac
