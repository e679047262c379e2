// Vectors that the block of a step kernel makes once, and its stores of
// vectors: several at a time, with all their loads before anything waits.
#include "GpuLowering.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool isTile(Value value) {
  return isa<RankedTensorType>(value.getType());
}

/// How the threads divide vectors of one size: `parts` groups of `lanes`
/// threads take vectors in turn, `width` elements a thread.
struct GpuLowering::Shares {
  int64_t width, lanes, parts;
};

/// What leaves the busiest thread the fewest elements.
std::optional<GpuLowering::Shares> GpuLowering::sharesOf(int64_t size,
                                                         int64_t count) const {
  std::optional<Shares> best;
  int64_t least = 0;
  for (int64_t width : {1, 2, 4, 8}) {
    int64_t lanes = size / width;
    if (size % width != 0 || lanes > threads)
      continue;
    // What a thread does beside its warp costs less than a branch around it.
    int64_t parts = lanes < 32 ? 1 : std::min(threads / lanes, count);
    int64_t elements = llvm::divideCeil(count, parts) * width;
    if (best && elements >= least)
      continue;
    best = Shares{width, lanes, parts};
    least = elements;
  }
  return best;
}

/// Evaluates the loads behind an inline value, which evaluate() remembers.
void GpuLowering::startLoads(Value value, const Group &group) {
  if (!isTile(value) || tileType(value).getRank() != 1 ||
      home(value) != tile::Home::Inline)
    return;
  Operation *op = value.getDefiningOp();
  if (isa<tile::LoadOp>(op)) {
    evaluate(value, group);
    return;
  }
  for (Value operand : op->getOperands())
    startLoads(operand, group);
}

/// The elements of this thread in part `part`; surplus threads repeat others'.
Group GpuLowering::groupOf(const Shares &shares, int64_t part) {
  Value number = shares.parts > 1          ? b.add(thread, -part * shares.lanes)
                 : shares.lanes == threads ? thread
                                           : b.rem(thread, shares.lanes);
  Group group;
  group.col = {b.mul(number, shares.width), 0};
  group.width = shares.width;
  return group;
}

/// Emits `body` for the threads of part `part`; surplus ones repeat others'
/// work unless all work is to be done once.
void GpuLowering::forPart(const Shares &shares, int64_t part, bool once,
                          llvm::function_ref<void(const Group &)> body) {
  OpBuilder::InsertionGuard guard(b);
  if (shares.parts > 1 || (once && shares.lanes < threads)) {
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                         b.add(thread, -part * shares.lanes),
                                         b.i32(shares.lanes));
    auto branch = scf::IfOp::create(b, inside, false);
    b.setInsertionPointToStart(branch.thenBlock());
  }
  memo.clear();
  body(groupOf(shares, part));
  memo.clear();
}

/// A vector computed from memory and vectors, not from the state's registers.
bool GpuLowering::isMadeOnce(Operation *op) const {
  if (op->getNumResults() != 1 || !isTile(op->getResult(0)) ||
      tileType(op->getResult(0)).getRank() != 1 ||
      home(op->getResult(0)) != tile::Home::Shared || isa<tile::ReduceOp>(op))
    return false;
  return llvm::none_of(op->getOperands(),
                       [&](Value x) { return hasRegisterLeaf(x); });
}

/// Ops whose code may come before that of a batch which stands before them.
bool GpuLowering::mayOvertake(Operation *op) const {
  if (op->hasTrait<OpTrait::IsTerminator>() || op->getNumRegions() > 0)
    return false;
  if (auto load = dyn_cast<tile::LoadOp>(op);
      load && !(storeBatch.empty() && storesBehind.empty()) &&
      isWritten(load.getRef()))
    return false;
  if (op->getNumResults() == 1 && isTile(op->getResult(0)))
    return home(op->getResult(0)) == tile::Home::Inline;
  return op->getNumResults() > 0 && llvm::none_of(op->getOperands(), isTile);
}

bool GpuLowering::joinsBatch(Operation *op) {
  if (schedule.getForm() != "step")
    return false;
  auto overlaps = [](ArrayRef<Range> xs, ArrayRef<Range> ys) {
    return llvm::any_of(xs, [&](Range x) {
      return llvm::any_of(ys, [&](Range y) {
        return x.first < y.second && y.first < x.second;
      });
    });
  };
  if (isMadeOnce(op)) {
    SmallVector<Range> reads = rangesRead(op->getOperands());
    Range written = range(op->getResult(0));
    SmallVector<Range> readBefore, writtenBefore;
    for (Operation *other : vectorBatch) {
      readBefore.append(rangesRead(other->getOperands()));
      writtenBefore.push_back(range(other->getResult(0)));
    }
    if (!storeBatch.empty() || overlaps(reads, writtenBefore) ||
        overlaps(written, readBefore) || overlaps(written, writtenBefore))
      flushBatches();
    vectorBatch.push_back(op);
    return true;
  }
  auto store = dyn_cast<tile::StoreOp>(op);
  if (store && tileType(store.getValue()).getRank() == 1 &&
      !hasRegisterLeaf(store.getValue())) {
    if (Operation *maker = makerOf(store)) {
      storesBehind[maker].push_back(store);
      return true;
    }
    if (!vectorBatch.empty())
      flushBatches();
    storeBatch.push_back(store);
    return true;
  }
  if (!mayOvertake(op))
    flushBatches();
  return false;
}

/// Of the vectors in the batch the one that is made of all that `store` writes.
Operation *GpuLowering::makerOf(tile::StoreOp store) const {
  SetVector<tile::LoadOp> stored;
  loadLeaves(store.getValue(), stored);
  for (Operation *op : vectorBatch) {
    SetVector<tile::LoadOp> loads;
    for (Value operand : op->getOperands())
      loadLeaves(operand, loads);
    if (!stored.empty() && llvm::all_of(stored, [&](tile::LoadOp load) {
          return loads.contains(load);
        }))
      return op;
  }
  return nullptr;
}

void GpuLowering::flushBatches() {
  if (!vectorBatch.empty())
    makeVectors(std::exchange(vectorBatch, {}));
  if (!storeBatch.empty())
    storeVectors(std::exchange(storeBatch, {}));
}

/// The condition without which none of the stores happens, or null.
static Value commonGuard(ArrayRef<tile::StoreOp> ops) {
  Value condition;
  for (tile::StoreOp op : ops) {
    auto guard = op.getRef().getDefiningOp<tile::GuardOp>();
    if (!guard || (condition && guard.getCondition() != condition))
      return {};
    condition = guard.getCondition();
  }
  return condition;
}

/// Sorts `ops` by the size of their vectors and gives each size its shares;
/// nothing where a thread would have more than eight elements of one.
template <typename Op>
std::optional<SmallVector<std::pair<GpuLowering::Shares, SmallVector<Op>>>>
GpuLowering::divide(ArrayRef<Op> ops, llvm::function_ref<Value(Op)> vectorOf,
                    llvm::function_ref<int64_t(ArrayRef<Op>)> count) const {
  llvm::MapVector<int64_t, SmallVector<Op>> sizes;
  for (Op op : ops)
    sizes[tileType(vectorOf(op)).getDimSize(0)].push_back(op);
  SmallVector<std::pair<Shares, SmallVector<Op>>> divided;
  for (auto &[size, some] : sizes) {
    std::optional<Shares> shares = sharesOf(size, count(some));
    if (!shares)
      return std::nullopt;
    divided.push_back({*shares, some});
  }
  return divided;
}

void GpuLowering::makeVectors(ArrayRef<Operation *> ops) {
  auto resultOf = [](Operation *op) -> Value { return op->getResult(0); };
  auto divided = divide<Operation *>(
      ops, resultOf, [](auto some) -> int64_t { return some.size(); });
  auto behind = std::exchange(storesBehind, {});
  if (!divided) {
    for (Operation *op : ops)
      materialise(op, op->getResult(0));
    for (auto &[op, stores] : behind)
      storeBehind(stores);
    return;
  }
  SmallVector<Range> reads, writes;
  for (Operation *op : ops) {
    reads.append(rangesRead(op->getOperands()));
    writes.push_back(range(op->getResult(0)));
  }
  access(reads, writes);
  // What a thread asks for beside its first loads comes behind them.
  auto prefetches = std::exchange(heldPrefetches, {});
  using Work = SmallVector<std::pair<Operation *, Group>>;
  auto make = [&](const Work &work) {
    for (auto &[op, group] : work)
      for (Value operand : op->getOperands())
        startLoads(operand, group);
    for (tile::PrefetchOp prefetch : prefetches)
      lowerPrefetch(prefetch);
    SmallVector<Values> made;
    for (auto &[op, group] : work) {
      Value source = roundedSource(op->getResult(0));
      made.push_back(source != op->getResult(0) ? evaluate(source, group)
                                                : evaluateOp(op, group));
    }
    for (auto [item, elements] : llvm::zip(work, made))
      storeShared(item.first->getResult(0), item.second, elements);
    for (auto &[op, group] : work)
      storeBehind(behind.lookup(op), group);
  };
  // What needs no branch is one piece of work for every thread, or of the last
  // part where there are several, which would wait for it. Surplus threads may
  // read what another has replaced by then.
  Work common;
  SmallVector<std::pair<Operation *, Shares>> ofLastPart;
  auto parted = llvm::find_if(
      *divided, [](const auto &entry) { return entry.first.parts > 1; });
  SmallVector<tile::StoreOp> late;
  memo.clear();
  for (auto &[shares, some] : *divided)
    for (Operation *op : some) {
      if (shares.parts == 1 && parted != divided->end() &&
          shares.lanes <= parted->first.lanes)
        ofLastPart.push_back({op, shares});
      else if (shares.parts == 1)
        common.push_back({op, groupOf(shares, 0)});
      if (shares.parts == 1 && shares.lanes < threads)
        llvm::append_range(late, std::exchange(behind[op], {}));
    }
  if (!common.empty()) {
    make(common);
    prefetches.clear();
  }
  for (auto &[shares, some] : *divided)
    for (int64_t part = 0; shares.parts > 1 && part < shares.parts; ++part)
      forPart(shares, part, false,
              [&, &shares = shares, &some = some](Group group) {
                Work mine;
                for (size_t i = part; i < some.size(); i += shares.parts)
                  mine.push_back({some[i], group});
                if (part + 1 == shares.parts)
                  for (auto &[op, itsShares] : std::exchange(ofLastPart, {}))
                    mine.push_back({op, groupOf(itsShares, 0)});
                make(mine);
                if (part + 1 == shares.parts)
                  prefetches.clear();
              });
  memo.clear();
  storeBehind(late);
}

/// How many of the first of `stores` fill memory together: what lies side by
/// side, such as the entries of a channel, from an aligned address on.
static size_t runOf(ArrayRef<tile::StoreOp> stores) {
  tile::StoreOp first = stores.front();
  auto count = getConstantIntValue(first.getStride()).value_or(1);
  int64_t bytes = count * bytesOf(first.getRef().getType().getElementType());
  if (count < 2 || static_cast<int64_t>(first.getAlign()) < bytes ||
      static_cast<int64_t>(stores.size()) < count)
    return 1;
  for (int64_t i = 1; i < count; ++i) {
    tile::StoreOp other = stores[i];
    auto base = other.getBase().getDefiningOp<arith::AddIOp>();
    if (!base || base.getLhs() != first.getBase() ||
        getConstantIntValue(base.getRhs()) != i ||
        other.getRef() != first.getRef() ||
        other.getStride() != first.getStride() ||
        other.getValid() != first.getValid())
      return 1;
  }
  return static_cast<size_t>(count);
}

/// Stores of what a vector was made of, by the threads that made it: nobody
/// else reads those channels.
void GpuLowering::storeBehind(ArrayRef<tile::StoreOp> stores,
                              const Group &group) {
  llvm::MapVector<Value, SmallVector<tile::StoreOp>> sorted;
  for (tile::StoreOp store : stores)
    sorted[commonGuard(store)].push_back(store);
  for (auto &[condition, some] : sorted) {
    OpBuilder::InsertionGuard guard(b);
    if (condition) {
      auto branch = scf::IfOp::create(b, scalars.lookup(condition), false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    for (ArrayRef<tile::StoreOp> rest = some; !rest.empty();) {
      size_t count = runOf(rest);
      storeRun(rest.take_front(count), group);
      rest = rest.drop_front(count);
    }
  }
}

/// The same by any threads, once all have read.
void GpuLowering::storeBehind(ArrayRef<tile::StoreOp> stores) {
  if (stores.empty())
    return;
  synchronise();
  storeVectors(stores);
}

static Value argumentOf(tile::StoreOp op) {
  Value ref = op.getRef();
  while (auto guard = ref.getDefiningOp<tile::GuardOp>())
    ref = guard.getRef();
  return ref;
}

/// Stores in their order, by the argument that they go through.
static llvm::MapVector<Value, SmallVector<tile::StoreOp>>
byArgument(ArrayRef<tile::StoreOp> ops) {
  llvm::MapVector<Value, SmallVector<tile::StoreOp>> arguments;
  for (tile::StoreOp op : ops)
    arguments[argumentOf(op)].push_back(op);
  return arguments;
}

void GpuLowering::storeVectors(ArrayRef<tile::StoreOp> ops) {
  auto divided = divide<tile::StoreOp>(
      ops, [](tile::StoreOp op) -> Value { return op.getValue(); },
      [](auto some) -> int64_t { return byArgument(some).size(); });
  if (!divided) {
    for (tile::StoreOp op : ops)
      lowerStore(op);
    return;
  }
  SmallVector<Range> reads;
  for (tile::StoreOp op : ops)
    reads.append(rangesRead(op.getValue()));
  access(reads, {});
  // What other threads have read of an argument they must have by now.
  if (areReadBefore(ops))
    synchronise();
  Value condition = commonGuard(ops);
  if (!condition) {
    awaitKernelsAhead();
    return storeDivided(*divided);
  }
  auto branch = scf::IfOp::create(b, scalars.lookup(condition), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  awaitKernelsAhead();
  storeDivided(*divided);
}

/// Stores through one argument belong to one part: each of its threads has its
/// channels to itself, and what it loads of them it loads before it stores.
void GpuLowering::storeDivided(
    ArrayRef<std::pair<Shares, SmallVector<tile::StoreOp>>> all) {
  for (auto &[shares, some] : all) {
    auto arguments = byArgument(some);
    bool readsWritten = llvm::any_of(some, [&](tile::StoreOp op) {
      SetVector<tile::LoadOp> loads;
      loadLeaves(op.getValue(), loads);
      return llvm::any_of(
          loads, [&](tile::LoadOp load) { return isWritten(load.getRef()); });
    });
    for (int64_t part = 0; part < shares.parts; ++part)
      forPart(shares, part, readsWritten,
              [&, &shares = shares](const Group &group) {
                SmallVector<tile::StoreOp> mine;
                for (size_t i = part; i < arguments.size(); i += shares.parts)
                  mine.append(arguments.getArrayRef()[i].second);
                for (tile::StoreOp op : mine)
                  startLoads(roundedSource(op.getValue()), group);
                SmallVector<Values> elements;
                for (tile::StoreOp op : mine)
                  elements.push_back(
                      evaluate(roundedSource(op.getValue()), group));
                for (auto [op, values] : llvm::zip(mine, elements))
                  storeVector(op, group, values);
              });
  }
}

} // namespace kdac
