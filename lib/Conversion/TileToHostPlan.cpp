#include "TileToHostPlan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

// Costs are in vector instructions per vector of results. A value used more
// than once is kept when recomputing it costs more than storing and reloading.
static constexpr int64_t kKeepCost = 4;
static constexpr int64_t kLineBytes = 64;
static constexpr int64_t kLineElements = kLineBytes / sizeof(float);

int64_t Buffer::bytes() const {
  int64_t size = rows * pitch * int64_t(sizeof(float));
  return (size + kLineBytes - 1) / kLineBytes * kLineBytes;
}

RankedTensorType tileType(Value value) {
  return dyn_cast<RankedTensorType>(value.getType());
}

bool isPointwise(Operation *op) {
  return op->getNumResults() == 1 && tileType(op->getResult(0)) &&
         op->hasTrait<OpTrait::Elementwise>();
}

int64_t lanesFor(int64_t size, int64_t width) {
  int64_t lanes = 1;
  while (lanes * 2 <= width && size % (lanes * 2) == 0)
    lanes *= 2;
  return lanes;
}

static bool hasTileResult(Operation *op) {
  return llvm::any_of(op->getResults(), [](Value v) { return !!tileType(v); });
}

/// Instructions of one op itself, without its operands.
static int64_t ownCost(Operation *op) {
  return TypeSwitch<Operation *, int64_t>(op)
      .Case<math::Exp2Op, math::Log2Op>([](auto) { return 14; })
      .Case<math::RsqrtOp, math::SqrtOp, arith::DivFOp>([](auto) { return 6; })
      .Case<arith::TruncFOp>([](auto) { return 3; })
      .Case<LoadOp>([](auto) { return 3; })
      .Case<arith::ConstantOp, SplatOp, RowOp, BroadcastOp, WindowOp>(
          [](auto) { return 0; })
      .Default([](auto) { return 1; });
}

Plan::Plan(func::FuncOp kernel) {
  number(kernel);
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { place(op); });
  kernel.walk<WalkOrder::PreOrder>(
      [&](scf::ForOp loop) { shareCarried(loop); });
  setLives();
  assignOffsets();
}

void Plan::number(func::FuncOp kernel) {
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    order[op] = static_cast<int64_t>(order.size());
    if (isa<StoreOp>(op))
      stores.push_back(op);
  });
}

const Buffer *Plan::buffer(Value value) const {
  auto it = bufferOf.find(value);
  return it == bufferOf.end() ? nullptr : &buffers[it->second];
}

ArrayRef<unsigned> Plan::temporaries(Operation *op) const {
  auto it = temps.find(op);
  return it == temps.end() ? ArrayRef<unsigned>() : ArrayRef(it->second);
}

unsigned Plan::addBuffer(int64_t rows, int64_t cols) {
  Buffer buffer;
  buffer.rows = rows, buffer.cols = cols, buffer.pitch = cols;
  // Columns of a tile are read with a stride of one row: an odd number of
  // cache lines between rows spreads them over all sets of the L1 cache.
  if (rows > 1 && cols % kLineElements == 0 && (cols / kLineElements) % 2 == 0)
    buffer.pitch = cols + kLineElements;
  buffer.first = static_cast<int64_t>(order.size());
  buffer.last = -1;
  buffers.push_back(buffer);
  return buffers.size() - 1;
}

unsigned Plan::addBuffer(RankedTensorType type) {
  ArrayRef<int64_t> shape = type.getShape();
  return addBuffer(shape.size() > 1 ? shape[0] : 1,
                   shape.empty() ? 1 : shape.back());
}

//===-- Inline or buffer --------------------------------------------------===//

int64_t Plan::costOf(Value value) const {
  if (!tileType(value))
    return 0;
  if (bufferOf.contains(value))
    return 1;
  return costs.lookup(value);
}

/// Ops whose code is a loop nest of its own, or whose reads cannot be repeated.
static bool isAlwaysBuffered(Operation *op) {
  if (auto load = dyn_cast<LoadOp>(op))
    return load.getTransposed() || load.getType().getRank() == 1;
  return isa<DotOp, DecayedGramOp, UnitTrilInverseOp, CumsumOp, ReduceOp,
             OnceOp>(op);
}

/// Uses that read elements in an order of their own.
static bool needsMemory(OpOperand &use) {
  Operation *user = use.getOwner();
  if (auto dot = dyn_cast<DotOp>(user))
    return use.get() == dot.getA() || use.get() == dot.getB();
  return isa<scf::ForOp, scf::YieldOp, UnitTrilInverseOp>(user);
}

bool Plan::mustBuffer(Operation *op, Value result, int64_t cost) const {
  if (!isa<FloatType>(tileType(result).getElementType()))
    return false;
  if (isAlwaysBuffered(op) || llvm::any_of(result.getUses(), needsMemory))
    return true;
  if (isa<LoadOp>(op) && crossesStore(op))
    return true;
  int64_t uses = 0;
  for (OpOperand &use : result.getUses()) {
    Operation *user = use.getOwner();
    // A vector broadcast to a tile is read once per row or column, a value from
    // outside a loop once per iteration, a factor of a Gram product per level.
    bool repeated =
        isa<BroadcastOp>(user) || user->getBlock() != op->getBlock();
    if (repeated && cost > 1)
      return true;
    uses += isa<DecayedGramOp>(user) ? 2 : 1;
  }
  return uses > 1 && cost >= kKeepCost;
}

/// True when some code that would evaluate an inline `load` comes after a
/// store, whose argument may overlap the one that is loaded.
bool Plan::crossesStore(Operation *load) const {
  int64_t last = order.lookup(load);
  SmallVector<Operation *> work = {load};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    for (Operation *user : op->getUsers()) {
      last = std::max(last, endOf(user));
      if (isPointwise(user) || isa<RowOp, BroadcastOp, WindowOp>(user))
        work.push_back(user);
    }
  }
  return llvm::any_of(stores, [&](Operation *store) {
    int64_t at = order.lookup(store);
    return at > order.lookup(load) && at < last;
  });
}

void Plan::place(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return placeLoop(loop);
  if (!hasTileResult(op))
    return placeTemporaries(op);
  int64_t cost = ownCost(op);
  for (Value operand : op->getOperands())
    cost += costOf(operand);
  for (Value result : op->getResults()) {
    costs[result] = cost;
    if (mustBuffer(op, result, cost))
      bufferOf[result] = addBuffer(tileType(result));
  }
  placeTemporaries(op);
}

/// A loop-carried tile has one buffer: its initial value's where that dies
/// here.
void Plan::placeLoop(scf::ForOp loop) {
  for (auto [init, arg, result] : llvm::zip_equal(
           loop.getInitArgs(), loop.getRegionIterArgs(), loop.getResults())) {
    if (!tileType(init))
      continue;
    auto it = bufferOf.find(init);
    bool dies = it != bufferOf.end() && init.hasOneUse() &&
                init.getParentBlock() == loop->getBlock();
    unsigned buffer = dies ? it->second : addBuffer(tileType(init));
    bufferOf[arg] = bufferOf[result] = buffer;
  }
}

void Plan::placeTemporaries(Operation *op) {
  auto add = [&](int64_t rows, int64_t cols) {
    temps[op].push_back(addBuffer(rows, cols));
  };
  if (auto dot = dyn_cast<DotOp>(op)) {
    auto type = cast<RankedTensorType>(dot.getB().getType());
    if (dot.getTransB())
      add(type.getDimSize(1), type.getDimSize(0));
  }
  if (auto gram = dyn_cast<DecayedGramOp>(op)) {
    auto type = cast<RankedTensorType>(gram.getRhs().getType());
    int64_t rows = type.getDimSize(0), cols = type.getDimSize(1);
    add(cols, rows); // scaled right side, transposed
    add(rows, cols); // scaled right side
    for (size_t i = 0; i < gram.getLhs().size(); ++i)
      add(rows, cols); // scaled left sides
  }
}

//===-- Loop-carried tiles ------------------------------------------------===//

void Plan::forEachRead(Value value, bool pointwise,
                       function_ref<void(Operation *, bool)> visit) const {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    bool same = pointwise && isPointwise(user);
    if (auto dot = dyn_cast<DotOp>(user))
      same = pointwise && value != dot.getA() && value != dot.getB();
    bool isInline = hasTileResult(user) && !isa<scf::ForOp>(user) &&
                    !bufferOf.contains(user->getResult(0));
    if (isInline)
      forEachRead(user->getResult(0), same, visit);
    else
      visit(user, same);
  }
}

int64_t Plan::endOf(Operation *op) const {
  int64_t end = order.lookup(op);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (!block.empty())
        end = std::max(end, endOf(&block.back()));
  return end;
}

int64_t Plan::readEnd(Value value, Operation *root) const {
  Block *home = value.getParentBlock();
  Operation *ancestor = home->findAncestorOpInBlock(*root);
  // A loop reads what it starts from before it runs.
  if (ancestor == root)
    return order.lookup(root);
  return endOf(ancestor ? ancestor : root);
}

/// `update` may overwrite `carried` when it is the last to read it and reads
/// each element just before writing it.
bool Plan::canUpdateInPlace(Value carried, Operation *update) const {
  bool legal = true;
  forEachRead(carried, /*pointwise=*/true, [&](Operation *root, bool same) {
    if (root == update)
      legal &= same;
    else
      legal &= readEnd(carried, root) < order.lookup(update);
  });
  return legal;
}

void Plan::shareCarried(scf::ForOp loop) {
  auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
  for (auto [arg, next] :
       llvm::zip_equal(loop.getRegionIterArgs(), yield.getOperands())) {
    Operation *update = next.getDefiningOp();
    if (!tileType(arg) || !update || update->getBlock() != loop.getBody() ||
        isa<scf::ForOp>(update) || !bufferOf.contains(next))
      continue;
    bool yieldedOnce = llvm::count(yield.getOperands(), next) == 1;
    if (yieldedOnce && canUpdateInPlace(arg, update))
      bufferOf[next] = bufferOf[arg];
  }
}

//===-- Lives and offsets -------------------------------------------------===//

void Plan::setLives() {
  for (auto [value, index] : bufferOf) {
    Buffer &buffer = buffers[index];
    Operation *def = value.getDefiningOp();
    int64_t first =
        order.lookup(def ? def : value.getParentBlock()->getParentOp());
    buffer.first = std::min(buffer.first, first);
    buffer.last = std::max(buffer.last, def ? endOf(def) : first);
    if (!def) // carried around the whole loop
      buffer.last =
          std::max(buffer.last, endOf(value.getParentBlock()->getParentOp()));
    forEachRead(value, true, [&, value = value](Operation *root, bool) {
      buffer.last = std::max(buffer.last, readEnd(value, root));
    });
  }
  for (auto &[op, list] : temps)
    for (unsigned index : list)
      buffers[index].first = buffers[index].last = order.lookup(op);
}

/// First fit in order of birth: a buffer takes the lowest bytes that no buffer
/// of an overlapping life holds.
void Plan::assignOffsets() {
  SmallVector<Buffer *> queue;
  for (Buffer &buffer : buffers)
    if (buffer.last >= 0)
      queue.push_back(&buffer);
  llvm::sort(queue, [](Buffer *a, Buffer *b) {
    return std::make_pair(a->first, a) < std::make_pair(b->first, b);
  });
  SmallVector<Buffer *> placed; // sorted by offset
  for (Buffer *buffer : queue) {
    int64_t offset = 0;
    for (Buffer *other : placed) {
      bool overlap =
          other->last >= buffer->first && other->first <= buffer->last;
      if (overlap && other->offset < offset + buffer->bytes())
        offset = std::max(offset, other->offset + other->bytes());
    }
    buffer->offset = offset;
    totalBytes = std::max(totalBytes, offset + buffer->bytes());
    placed.insert(llvm::upper_bound(placed, buffer,
                                    [](Buffer *a, Buffer *b) {
                                      return a->offset < b->offset;
                                    }),
                  buffer);
  }
}

} // namespace kdac::host
