#include "Roles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace kdac {

static bool isTile(Value value) {
  return isa<RankedTensorType>(value.getType());
}

bool isMadeAgain(Operation *op) {
  return isa<tile::LoadOp, tile::BroadcastOp, tile::SplatOp, tile::IotaOp,
             arith::ExtFOp, arith::ConstantOp>(op);
}

/// Everything computed from which slice of V a program has.
static llvm::DenseSet<Operation *> ofOneSlice(func::FuncOp kernel) {
  llvm::DenseSet<Operation *> result;
  auto id = *kernel.getOps<tile::ProgramIdOp>().begin();
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    bool depends = llvm::any_of(op->getOperands(), [&](Value operand) {
      return result.contains(operand.getDefiningOp());
    });
    // The program's number modulo the constant number of slices: see
    // KernelBuilder. A single slice has folded away.
    bool isSlice = isa<arith::RemUIOp>(op) &&
                   op->getOperand(0) == id.getResult() &&
                   getConstantIntValue(op->getOperand(1));
    if (depends || isSlice)
      result.insert(op);
  });
  return result;
}

llvm::DenseSet<Operation *> chainOf(func::FuncOp kernel, scf::ForOp loop) {
  llvm::DenseSet<Operation *> sliced = ofOneSlice(kernel), chain;
  for (Operation &op : loop.getBody()->without_terminator()) {
    bool depends = llvm::any_of(op.getOperands(), [&](Value operand) {
      auto argument = dyn_cast<BlockArgument>(operand);
      if (argument)
        return argument.getOwner() == loop.getBody() && isTile(operand);
      return chain.contains(operand.getDefiningOp());
    });
    bool isSliced = sliced.contains(&op) && op.getNumResults() == 1 &&
                    isTile(op.getResult(0));
    if (depends || isSliced)
      chain.insert(&op);
  }
  return chain;
}

void markRoles(func::FuncOp kernel) {
  auto loop = *kernel.getOps<scf::ForOp>().begin();
  llvm::DenseSet<Operation *> chain = chainOf(kernel, loop);
  Block *body = loop.getBody();
  // What only the chain reads and makes again is the chain's own.
  for (Operation &op : llvm::reverse(body->without_terminator()))
    if (isMadeAgain(&op) && !op.use_empty() &&
        llvm::all_of(op.getUsers(),
                     [&](Operation *user) { return chain.contains(user); }))
      chain.insert(&op);
  for (Operation &op : body->without_terminator()) {
    bool hasTile =
        llvm::any_of(op.getResultTypes(), llvm::IsaPred<RankedTensorType>) ||
        isa<tile::StoreOp>(op);
    if (hasTile)
      op.setAttr(tile::kRoleAttr,
                 StringAttr::get(op.getContext(), chain.contains(&op)
                                                      ? tile::kChainRole
                                                      : tile::kPrepareRole));
  }
}

SmallVector<Value> passedOn(scf::ForOp loop) {
  auto has = [](Operation *op, StringRef role) {
    auto attr = op->getAttrOfType<StringAttr>(tile::kRoleAttr);
    return attr && attr.getValue() == role;
  };
  SmallVector<Value> values;
  for (Operation &op : loop.getBody()->without_terminator())
    for (Value result : op.getResults())
      if (has(&op, tile::kPrepareRole) &&
          llvm::any_of(result.getUsers(), [&](Operation *user) {
            return has(user, tile::kChainRole);
          }))
        values.push_back(result);
  return values;
}

} // namespace kdac
