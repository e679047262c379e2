// V1 to V3: registers of products that run. A value of the program is what a
// register holds, so that each has one use until it has been waited for.
#include "TileVerifyAsync.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace kdac {

namespace {

/// Products that are waited for together.
struct Group {
  llvm::SetVector<Value> sums;     ///< that they are still adding to
  llvm::SetVector<Value> operands; ///< that they read

  bool empty() const { return sums.empty() && operands.empty(); }
  void add(const Group &other) {
    sums.insert(other.sums.begin(), other.sums.end());
    operands.insert(other.operands.begin(), other.operands.end());
  }
  bool operator==(const Group &other) const {
    return sums.size() == other.sums.size() &&
           operands.size() == other.operands.size();
  }
};

/// Groups in flight at one point of the program, the open one apart.
struct InFlight {
  SmallVector<Group> closed; ///< the newest last
  Group open;

  bool empty() const { return closed.empty() && open.empty(); }
  Group *groupOf(Value sum) {
    for (Group &group : closed)
      if (group.sums.contains(sum))
        return &group;
    return open.sums.contains(sum) ? &open : nullptr;
  }
  /// What either of two ways here may have left, the newest beside the newest.
  void join(const InFlight &other) {
    open.add(other.open);
    if (closed.size() < other.closed.size())
      closed.insert(closed.begin(), other.closed.size() - closed.size(), {});
    size_t older = closed.size() - other.closed.size();
    for (auto [i, group] : llvm::enumerate(other.closed))
      closed[older + i].add(group);
  }
  bool operator==(const InFlight &other) const {
    return open == other.open && closed == other.closed;
  }
};

class Accumulators {
public:
  LogicalResult verify(LLVM::LLVMFuncOp kernel) {
    InFlight none;
    return block(kernel.getBody().front(), none);
  }

private:
  LogicalResult block(Block &block, InFlight &now);
  LogicalResult visit(Operation *op, InFlight &now);
  LogicalResult product(LLVM::InlineAsmOp op, InFlight &now);
  LogicalResult wait(LLVM::InlineAsmOp op, InFlight &now);
  LogicalResult branch(scf::IfOp op, InFlight &now);
  LogicalResult loop(scf::ForOp op, InFlight &now);
  LogicalResult add(LLVM::InlineAsmOp op, InFlight &now);
  /// Registers go on under other names.
  static void rename(ValueRange from, ValueRange to, InFlight &now);

  llvm::DenseSet<Value> fenced; ///< that a wgmma.fence has passed
};

/// How many of the first operands are registers that results stay in.
size_t tiedOperands(LLVM::InlineAsmOp op) {
  SmallVector<StringRef> parts;
  op.getConstraints().split(parts, ',');
  return llvm::count_if(
      parts, [](StringRef part) { return llvm::isDigit(part.front()); });
}

/// A result of assembly for each register.
SmallVector<Value> registersOf(LLVM::InlineAsmOp op) {
  SmallVector<Value> values;
  for (Value result : op->getResults()) {
    if (!isa<LLVM::LLVMStructType>(result.getType()))
      return {result};
    for (Operation *user : result.getUsers())
      values.append(user->result_begin(), user->result_end());
  }
  return values;
}

/// The number in "wgmma.wait_group.sync.aligned 1;".
size_t groupsLeft(LLVM::InlineAsmOp op) {
  size_t left = 0;
  op.getAsmString().rsplit(' ').second.consumeInteger(10, left);
  return left;
}

void Accumulators::rename(ValueRange from, ValueRange to, InFlight &now) {
  for (auto [old, name] : llvm::zip(from, to))
    if (Group *group = now.groupOf(old)) {
      group->sums.remove(old);
      group->sums.insert(name);
    }
}

/// Results of a product, a fence or a wait by their number.
static SmallVector<Value> resultsInOrder(LLVM::InlineAsmOp op) {
  SmallVector<Value> values = registersOf(op);
  if (op->getNumResults() == 1 &&
      isa<LLVM::LLVMStructType>(op->getResult(0).getType()))
    llvm::sort(values, [](Value a, Value b) {
      auto number = [](Value value) {
        auto part = value.getDefiningOp<LLVM::ExtractValueOp>();
        return part ? part.getPosition()[0] : 0;
      };
      return number(a) < number(b);
    });
  return values;
}

LogicalResult Accumulators::add(LLVM::InlineAsmOp op, InFlight &now) {
  for (Value sum : resultsInOrder(op)) {
    // tile-verify-async V1
    if (!sum.hasOneUse())
      return op.emitOpError()
             << "expected one use of an accumulator in flight, but got "
             << llvm::range_size(sum.getUses());
    now.open.sums.insert(sum);
  }
  return success();
}

LogicalResult Accumulators::product(LLVM::InlineAsmOp op, InFlight &now) {
  size_t tied = tiedOperands(op);
  for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
    bool isSum = i < tied;
    Group *running = now.groupOf(operand);
    if (isSum && running) {
      running->sums.remove(operand);
      continue;
    }
    // tile-verify-async V2
    bool isRegister = isSum || operand.getType().isInteger(32);
    if (isRegister && !fenced.contains(operand))
      return op.emitOpError()
             << "expected a wgmma.fence before the product that has passed "
             << (isSum ? "its accumulator" : "its operand") << " " << i;
    if (isRegister && !isSum)
      now.open.operands.insert(operand);
  }
  return add(op, now);
}

LogicalResult Accumulators::wait(LLVM::InlineAsmOp op, InFlight &now) {
  size_t left = groupsLeft(op);
  // tile-verify-async V3
  if (!now.open.empty())
    return op.emitOpError() << "expected wgmma.commit_group between products "
                               "and the wait for them";
  llvm::DenseSet<Value> taken(op.getOperands().begin(), op.getOperands().end());
  auto isTaken = [&](Value value) { return taken.contains(value); };
  while (now.closed.size() > left) {
    const Group &group = now.closed.front();
    if (!llvm::all_of(group.sums, isTaken))
      return op.emitOpError() << "expected the wait to take all accumulators "
                                 "of the products that it waits for";
    if (!llvm::all_of(group.operands, isTaken))
      return op.emitOpError() << "expected the wait to keep all registers that "
                                 "the products it waits for read";
    now.closed.erase(now.closed.begin());
  }
  rename(op.getOperands().take_front(tiedOperands(op)), resultsInOrder(op),
         now);
  return success();
}

LogicalResult Accumulators::branch(scf::IfOp op, InFlight &now) {
  InFlight before = now, joined;
  for (Region *region : op.getRegions()) {
    InFlight inside = before;
    if (!region->empty()) {
      if (failed(block(region->front(), inside)))
        return failure();
      rename(region->front().getTerminator()->getOperands(), op->getResults(),
             inside);
    }
    if (region->getRegionNumber() == 0)
      joined = inside;
    else
      joined.join(inside);
  }
  now = joined;
  return success();
}

LogicalResult Accumulators::loop(scf::ForOp op, InFlight &now) {
  InFlight start = now, after = now;
  rename(op.getInitArgs(), op.getRegionIterArgs(), start);
  while (true) {
    InFlight inside = start;
    if (failed(block(*op.getBody(), inside)))
      return failure();
    after = inside;
    rename(op.getYieldedValues(), op.getResults(), after);
    rename(op.getYieldedValues(), op.getRegionIterArgs(), inside);
    InFlight joined = start;
    joined.join(inside);
    if (joined == start)
      break;
    constexpr size_t most = 8; // wait_group counts no further
    if (joined.closed.size() > most)
      return op.emitOpError() << "starts products in every turn that no turn "
                                 "waits for";
    start = joined;
  }
  rename(op.getInitArgs(), op.getResults(), now); // of no turn at all
  now.join(after);
  return success();
}

LogicalResult Accumulators::visit(Operation *op, InFlight &now) {
  if (auto made = dyn_cast<scf::IfOp>(op))
    return branch(made, now);
  if (auto made = dyn_cast<scf::ForOp>(op))
    return loop(made, now);
  if (isa<scf::YieldOp>(op) || isa<LLVM::ExtractValueOp>(op))
    return success();
  auto assembly = dyn_cast<LLVM::InlineAsmOp>(op);
  switch (asyncKindOf(op)) {
  case AsyncKind::Product:
    return product(assembly, now);
  case AsyncKind::RegisterFence: {
    SmallVector<Value> results = resultsInOrder(assembly);
    rename(op->getOperands().take_front(results.size()), results, now);
    fenced.insert(results.begin(), results.end());
    fenced.insert(op->operand_begin(), op->operand_end());
    return success();
  }
  case AsyncKind::Commit:
    now.closed.push_back(std::move(now.open));
    now.open = {};
    return success();
  case AsyncKind::Wait:
    return wait(assembly, now);
  default:
    break;
  }
  // tile-verify-async V3
  for (Value operand : op->getOperands())
    if (now.groupOf(operand))
      return op->emitOpError()
             << "reads an accumulator that has not been waited for";
  if (isa<LLVM::ReturnOp>(op) && !now.empty())
    return op->emitOpError() << "leaves products in flight";
  for (Region &region : op->getRegions())
    for (Block &inside : region)
      if (failed(block(inside, now)))
        return failure();
  return success();
}

LogicalResult Accumulators::block(Block &block, InFlight &now) {
  for (Operation &op : block)
    if (failed(visit(&op, now)))
      return failure();
  return success();
}

} // namespace

LogicalResult verifyAccumulators(LLVM::LLVMFuncOp kernel) {
  return Accumulators().verify(kernel);
}

} // namespace kdac
