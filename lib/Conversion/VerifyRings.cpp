// V7 to V9: mbarriers of rings. Those of one ring have one address but for the
// buffer's number, which is not constant.
#include "TileVerifyAsync.h"

#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace kdac {

namespace {

constexpr int64_t kBarrierBytes = 8;

using Counts = llvm::DenseMap<int64_t, int>;

bool isArrival(AsyncKind kind) {
  return kind == AsyncKind::Arrive || kind == AsyncKind::CopyArrive ||
         kind == AsyncKind::ClusterArrive;
}

/// How often one way through `block` arrives at each, loops inside apart.
FailureOr<Counts> arrivalsIn(Block &block) {
  Counts counts;
  for (Operation &op : block) {
    AsyncKind kind = asyncKindOf(&op);
    // Another block's are rings of their own.
    if (isArrival(kind) && kind != AsyncKind::ClusterArrive) {
      // tile-verify-async V9
      if (++counts[constantAddress(&op)] > 1)
        return op.emitOpError() << "arrives a second time in one turn at the "
                                   "mbarrier of a buffer";
      continue;
    }
    Counts most; // of any region
    for (Region &region : op.getRegions())
      for (Block &inside : region) {
        FailureOr<Counts> found = arrivalsIn(inside);
        if (failed(found))
          return failure();
        for (auto [address, count] : *found)
          most[address] = std::max(most[address], count);
      }
    if (isa<LoopLikeOpInterface>(op))
      continue;
    for (auto [address, count] : most)
      if ((counts[address] += count) > 1)
        return op.emitOpError() << "arrives a second time in one turn at the "
                                   "mbarrier of a buffer";
  }
  return counts;
}

LoopLikeOpInterface loopAround(Operation *op) {
  return op->getParentOfType<LoopLikeOpInterface>();
}

/// The body of the loop around `op`, or the block that it is in.
Block *turnOf(Operation *op) {
  LoopLikeOpInterface loop = loopAround(op);
  return loop ? loop->getRegions().back().findAncestorBlockInRegion(
                    *op->getBlock())
              : op->getBlock();
}

/// Turns of one role that wait for a ring's buffers, in a loop or the last one
/// apart, release the same. tile-verify-async V9
LogicalResult verifyTurns(LLVM::LLVMFuncOp kernel) {
  struct Turn {
    Operation *wait;
    llvm::SmallSet<int64_t, 4> released;
  };
  // By the mbarrier waited for and where the turns are.
  llvm::DenseMap<std::pair<int64_t, Block *>, Turn> turns;
  auto found = kernel.walk([&](Operation *op) -> WalkResult {
    if (asyncKindOf(op) != AsyncKind::WaitBarrier)
      return WalkResult::advance();
    Turn turn = {op, {}};
    turnOf(op)->walk([&](Operation *arrival) {
      if (isArrival(asyncKindOf(arrival)) &&
          loopAround(arrival) == loopAround(op))
        turn.released.insert(constantAddress(arrival));
    });
    Block *role = turnOf(op)->getParentOp()->getBlock();
    auto [known, isNew] = turns.try_emplace({constantAddress(op), role}, turn);
    if (!isNew && known->second.released != turn.released) {
      InFlightDiagnostic error =
          op->emitOpError()
          << "waits in a turn that does not arrive where others do";
      error.attachNote(known->second.wait->getLoc()) << "another turn's wait";
      return error;
    }
    return WalkResult::advance();
  });
  return failure(found.wasInterrupted());
}

} // namespace

LogicalResult verifyRings(LLVM::LLVMFuncOp kernel) {
  llvm::DenseSet<int64_t> initialised, arrived;
  kernel.walk([&](Operation *op) {
    AsyncKind kind = asyncKindOf(op);
    if (kind == AsyncKind::Init)
      initialised.insert(constantAddress(op));
    if (isArrival(kind))
      arrived.insert(constantAddress(op));
  });
  // They stand side by side. tile-verify-async V7
  SmallVector<int64_t> sorted(initialised.begin(), initialised.end());
  llvm::sort(sorted);
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i] != sorted[i - 1] + kBarrierBytes)
      return kernel.emitOpError()
             << "leaves the mbarrier at byte " << sorted[i - 1] + kBarrierBytes
             << " of shared memory without its initial count";
  auto found = kernel.walk([&](Operation *op) -> WalkResult {
    AsyncKind kind = asyncKindOf(op);
    bool isUse = kind == AsyncKind::WaitBarrier || isArrival(kind);
    // tile-verify-async V7
    if (isUse && !initialised.contains(constantAddress(op)))
      return op->emitOpError() << "uses an mbarrier that nobody initialises";
    // tile-verify-async V8
    if (kind == AsyncKind::WaitBarrier &&
        !arrived.contains(constantAddress(op)))
      return op->emitOpError() << "waits for an mbarrier where nobody arrives";
    return WalkResult::advance();
  });
  if (found.wasInterrupted())
    return failure();
  if (failed(arrivalsIn(kernel.getBody().front())))
    return failure();
  return verifyTurns(kernel);
}

} // namespace kdac
