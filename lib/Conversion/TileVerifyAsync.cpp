// What runs beside a thread's own program is synchronised as it must be:
// products by wgmma, copies in bulk, and the mbarriers of rings. Reads one
// thread's program as tile-to-nvvm leaves it, with structured control flow.
#include "TileVerifyAsync.h"
#include "kdac/Passes.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILEVERIFYASYNCPASS
#include "kdac/Passes.h.inc"

namespace {

LogicalResult verifyKernel(LLVM::LLVMFuncOp kernel) {
  return success(succeeded(verifyAccumulators(kernel)) &&
                 succeeded(verifyProxies(kernel)) &&
                 succeeded(verifyRings(kernel)));
}

struct TileVerifyAsyncPass
    : impl::TileVerifyAsyncPassBase<TileVerifyAsyncPass> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (!kernel.isExternal() && failed(verifyKernel(kernel)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace

AsyncKind asyncKindOf(Operation *op) {
  if (isa<NVVM::BarrierOp>(op))
    return AsyncKind::Sync;
  if (isa<NVVM::CpAsyncOp>(op))
    return AsyncKind::Copy;
  if (isa<NVVM::CpAsyncWaitGroupOp>(op))
    return AsyncKind::CopyWait;
  if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
    constexpr unsigned shared = 3;
    bool isShared = store.getAddr().getType().getAddressSpace() == shared;
    return isShared ? AsyncKind::Store : AsyncKind::None;
  }
  auto assembly = dyn_cast<LLVM::InlineAsmOp>(op);
  if (!assembly)
    return AsyncKind::None;
  // The first that a text contains; what others begin with stands behind them.
  static constexpr std::pair<StringLiteral, AsyncKind> texts[] = {
      {"wgmma.mma_async", AsyncKind::Product},
      {"wgmma.fence", AsyncKind::RegisterFence},
      {"wgmma.commit_group", AsyncKind::Commit},
      {"wgmma.wait_group", AsyncKind::Wait},
      {"fence.proxy.async", AsyncKind::ProxyFence},
      {"mbarrier.init", AsyncKind::Init},
      {"cp.async.mbarrier.arrive", AsyncKind::CopyArrive},
      {"mbarrier.arrive.release.cluster", AsyncKind::ClusterArrive},
      {"mbarrier.arrive", AsyncKind::Arrive},
      {"mbarrier.try_wait", AsyncKind::WaitBarrier},
      {"cp.async.bulk.global.shared", AsyncKind::BulkRead},
      {"cp.async.bulk.shared::cluster.shared", AsyncKind::BulkRead},
      {"cp.async.cg.shared", AsyncKind::Copy},
      {"st.shared::cluster", AsyncKind::ClusterStore},
      {"st.shared", AsyncKind::Store},
      {"stmatrix", AsyncKind::Store},
      {"barrier.cluster", AsyncKind::Sync},
      {"bar.warp.sync", AsyncKind::Sync},
      {"bar.sync", AsyncKind::Sync},
  };
  StringRef text = assembly.getAsmString();
  for (auto [part, kind] : texts)
    if (text.contains(part))
      return kind;
  return AsyncKind::None;
}

/// What a text adds to its address, as in "[$0 + 16384]".
static int64_t addendOf(LLVM::InlineAsmOp op) {
  StringRef rest = op.getAsmString().split("[$0 + ").second;
  int64_t addend = 0;
  rest.consumeInteger(10, addend);
  return addend;
}

static int64_t constantPart(Value value) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return *constant;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop)
      return 0;
    unsigned number = argument.getArgNumber();
    return constantPart(number ? loop.getInitArgs()[number - 1]
                               : loop.getLowerBound());
  }
  Operation *op = value.getDefiningOp();
  auto operand = [&](unsigned i) { return constantPart(op->getOperand(i)); };
  if (auto gep = dyn_cast<LLVM::GEPOp>(op)) {
    if (!gep.getElemType().isInteger(8))
      return operand(0);
    int64_t sum = operand(0);
    for (auto index : gep.getIndices())
      sum += isa<IntegerAttr>(index) ? cast<IntegerAttr>(index).getInt()
                                     : constantPart(cast<Value>(index));
    return sum;
  }
  if (isa<arith::AddIOp>(op))
    return operand(0) + operand(1);
  if (isa<arith::MulIOp, arith::ShLIOp>(op)) {
    std::optional<int64_t> factor = getConstantIntValue(op->getOperand(1));
    if (!factor)
      return 0;
    return isa<arith::MulIOp>(op) ? operand(0) * *factor
                                  : operand(0) << *factor;
  }
  if (isa<arith::SelectOp>(op))
    return std::min(operand(1), operand(2));
  auto assembly = dyn_cast<LLVM::InlineAsmOp>(op);
  bool isMapped = assembly && assembly.getAsmString().contains("mapa");
  if (isMapped || isa<LLVM::PtrToIntOp, LLVM::IntToPtrOp, arith::ExtUIOp,
                      arith::ExtSIOp, arith::IndexCastOp>(op))
    return operand(0);
  return 0;
}

int64_t constantAddress(Operation *op) {
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return constantPart(store.getAddr());
  int64_t address = constantPart(op->getOperand(0));
  if (auto assembly = dyn_cast<LLVM::InlineAsmOp>(op))
    address += addendOf(assembly);
  return address;
}

} // namespace kdac
