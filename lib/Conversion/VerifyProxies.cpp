// V4 to V6: what threads write to shared memory, and wgmma or bulk copies read,
// passes a fence.proxy.async of those threads before anybody is told.
#include "TileVerifyAsync.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace kdac {

namespace {

/// How far a thread's writes are on their way to the other proxy.
enum class Written { Nothing, Fenced, Raw };
/// The same of its copies by cp.async.
enum class Copied { Nothing, InFlight, Landed };

struct State {
  Written own = Written::Nothing, cluster = Written::Nothing;
  Copied copies = Copied::Nothing;

  void join(const State &other) {
    own = std::max(own, other.own);
    cluster = std::max(cluster, other.cluster);
    copies = std::max(copies, other.copies);
  }
  bool operator==(const State &other) const {
    return own == other.own && cluster == other.cluster &&
           copies == other.copies;
  }
};

class Proxies {
public:
  explicit Proxies(LLVM::LLVMFuncOp kernel) : kernel(kernel) {}
  LogicalResult verify();

private:
  void findReads();
  bool isRead(Operation *store) const;
  /// True if an asynchronous read may come after `op`.
  bool isReadAfter(Operation *op) const;
  LogicalResult block(Block &block, State &now);
  LogicalResult visit(Operation *op, State &now);
  LogicalResult expect(Operation *op, const State &now, StringRef what) const;

  LLVM::LLVMFuncOp kernel;
  ArrayRef<int64_t> ranges; ///< that are read, begin and end in turn
  llvm::DenseMap<Operation *, int64_t> order;
  SmallVector<Operation *> reads;
  llvm::DenseSet<int64_t> awaited; ///< mbarriers before such reads
};

bool isAsyncRead(Operation *op) {
  AsyncKind kind = asyncKindOf(op);
  return kind == AsyncKind::Product || kind == AsyncKind::BulkRead;
}

/// An mbarrier is awaited before a read if the wait is ahead of it, or around
/// it in a loop.
void Proxies::findReads() {
  SmallVector<Operation *> waits;
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    order[op] = order.size();
    if (isAsyncRead(op))
      reads.push_back(op);
    if (asyncKindOf(op) == AsyncKind::WaitBarrier)
      waits.push_back(op);
  });
  for (Operation *wait : waits)
    if (isReadAfter(wait))
      awaited.insert(constantAddress(wait));
}

/// In one program: not where one branch waits and the other reads.
bool Proxies::isReadAfter(Operation *op) const {
  return llvm::any_of(reads, [&](Operation *read) {
    for (Operation *around = op->getParentOp(); around != kernel;
         around = around->getParentOp())
      if (isa<LoopLikeOpInterface>(around) && around->isAncestor(read))
        return true;
    if (order.lookup(op) > order.lookup(read))
      return false;
    for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
         branch = branch->getParentOfType<scf::IfOp>()) {
      Region *own = op->getParentRegion();
      while (own->getParentOp() != branch)
        own = own->getParentRegion();
      if (branch->isAncestor(read) && !own->isAncestor(read->getParentRegion()))
        return false;
    }
    return true;
  });
}

bool Proxies::isRead(Operation *store) const {
  int64_t address = constantAddress(store);
  for (size_t i = 0; i + 1 < ranges.size(); i += 2)
    if (address >= ranges[i] && address < ranges[i + 1])
      return true;
  return false;
}

LogicalResult Proxies::expect(Operation *op, const State &now,
                              StringRef what) const {
  if (now.own == Written::Raw || now.copies == Copied::Landed)
    return op->emitOpError()
           << "expected fence.proxy.async between writes to shared memory and "
           << what;
  if (now.own == Written::Fenced)
    return op->emitOpError()
           << "expected a barrier of the threads that wrote between their "
              "fence.proxy.async and "
           << what;
  return success();
}

LogicalResult Proxies::visit(Operation *op, State &now) {
  switch (asyncKindOf(op)) {
  case AsyncKind::Store:
    if (isRead(op))
      now.own = Written::Raw;
    return success();
  case AsyncKind::ClusterStore:
    now.cluster = Written::Raw;
    return success();
  case AsyncKind::Copy:
    if (isRead(op) && now.copies == Copied::Nothing)
      now.copies = Copied::InFlight;
    return success();
  case AsyncKind::CopyWait:
    if (now.copies == Copied::InFlight)
      now.copies = Copied::Landed;
    return success();
  case AsyncKind::CopyArrive: // whoever waits for them has the fence
    now.copies = Copied::Nothing;
    return success();
  case AsyncKind::ProxyFence: {
    StringRef text = cast<LLVM::InlineAsmOp>(op).getAsmString();
    if (now.own == Written::Raw)
      now.own = Written::Fenced;
    if (now.cluster == Written::Raw && !text.contains("shared::cta"))
      now.cluster = Written::Fenced;
    if (now.copies == Copied::Landed)
      now.copies = Copied::InFlight; // others may be
    return success();
  }
  case AsyncKind::Sync:
    for (Written *written : {&now.own, &now.cluster})
      if (*written == Written::Fenced)
        *written = Written::Nothing;
    return success();
  case AsyncKind::Arrive:
    // tile-verify-async V5
    return awaited.contains(constantAddress(op))
               ? expect(op, now, "the arrival that says so")
               : success();
  case AsyncKind::ClusterArrive:
    // tile-verify-async V6
    if (now.cluster != Written::Nothing)
      return op->emitOpError()
             << "expected fence.proxy.async of the cluster and a barrier "
                "between writes to another block and the arrival there";
    return success();
  case AsyncKind::Product:
  case AsyncKind::BulkRead:
    // tile-verify-async V4
    return expect(op, now, "what reads them");
  default:
    break;
  }
  if (op->getNumRegions() == 0)
    return success();
  bool isLoop = isa<LoopLikeOpInterface>(op);
  State before = now, joined = now;
  if (isa<scf::IfOp>(op) && !cast<scf::IfOp>(op).getElseRegion().empty())
    joined = {};
  while (true) {
    State flow = before; // of regions one after the other, as a while has
    for (Region &region : op->getRegions()) {
      State inside = isLoop ? flow : before;
      if (region.empty())
        continue;
      if (failed(block(region.front(), inside)))
        return failure();
      flow = inside;
      joined.join(inside);
    }
    if (!isLoop || joined == before)
      break;
    before = joined;
  }
  now = joined;
  return success();
}

LogicalResult Proxies::block(Block &block, State &now) {
  for (Operation &op : block)
    if (failed(visit(&op, now)))
      return failure();
  return success();
}

LogicalResult Proxies::verify() {
  findReads();
  if (reads.empty())
    return success();
  auto attr = kernel->getAttrOfType<DenseI64ArrayAttr>(kAsyncBytesAttr);
  if (!attr)
    return kernel.emitOpError()
           << "expected " << kAsyncBytesAttr
           << ", the bytes of shared memory that wgmma and bulk copies read";
  ranges = attr.asArrayRef();
  State nothing;
  return block(kernel.getBody().front(), nothing);
}

} // namespace

LogicalResult verifyProxies(LLVM::LLVMFuncOp kernel) {
  return Proxies(kernel).verify();
}

} // namespace kdac
