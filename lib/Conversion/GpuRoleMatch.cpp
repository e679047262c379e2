// What the program of a kernel whose roles are warps says: its chunk loop, and
// what each role has of it (the parts: GpuRoleParts.cpp).
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

LogicalResult RoleLowering::refuse() {
  return at.kernel.emitOpError()
         << "has no chunk loop that roles warps can lower in stage "
            "tile-to-nvvm; roles split and fused take any";
}

/// True if `op` prepares what the chain reads.
static bool isPassedOn(Operation *op) {
  auto has = [](Operation *op, StringRef role) {
    auto attr = op->getAttrOfType<StringAttr>(tile::kRoleAttr);
    return attr && attr.getValue() == role;
  };
  return has(op, tile::kPrepareRole) &&
         llvm::any_of(op->getUsers(), [&](Operation *user) {
           return has(user, tile::kChainRole);
         });
}

/// True if `op` makes a number of numbers.
static bool isNumber(Operation *op) {
  return op->getNumResults() == 1 && op->getResult(0).getType().isF32() &&
         llvm::none_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>);
}

LogicalResult RoleLowering::match() {
  for (const char *name :
       {"tile.scratch", "tile.barriers", "tile.registers", "tile.image"})
    if (!at.kernel->hasAttr(name))
      return at.kernel.emitOpError()
             << "expected " << name << ", which tile-place writes";
  auto loops = at.kernel.getOps<scf::ForOp>();
  if (loops.empty() || (*loops.begin()).getInitArgs().size() != 1)
    return refuse();
  chunkLoop = *loops.begin();
  Value initial = chunkLoop.getInitArgs()[0];
  if (auto chosen = initial.getDefiningOp<arith::SelectOp>())
    initial = chosen.getFalseValue(); // a segment may start from the identity
  if (auto widened = initial.getDefiningOp<arith::ExtFOp>())
    initial = widened.getIn(); // elements of narrow types travel as f32
  state = initial.getDefiningOp<tile::LoadOp>();
  SmallVector<Value> images;
  for (Operation &op : chunkLoop.getBody()->without_terminator()) {
    if (auto load = dyn_cast<tile::LoadOp>(op)) {
      auto role = op.getAttrOfType<StringAttr>(tile::kRoleAttr);
      if (tile::isOfChannels(load, at.schedule))
        parts.headVector = load;
      else if (tileType(load.getResult()).getRank() == 1)
        parts.vectorLoads.push_back(load);
      else if (!role)
        return refuse();
      else if (role.getValue() == tile::kChainRole)
        values = load;
      else if (tileType(load.getResult()).getElementType().isF32())
        parts.wideLogits = load;
      else
        imageRows.push_back(load);
    } else if (auto scalar = dyn_cast<tile::LoadScalarOp>(op)) {
      parts.headScalars.push_back(scalar);
    } else if (isNumber(&op)) {
      parts.headNumbers.push_back(&op);
    } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
      output = store;
    } else if (auto place = dyn_cast<tile::CutOp>(op)) {
      cut = place;
    } else if (auto cumsum = dyn_cast<tile::CumsumOp>(op)) {
      parts.decay = cumsum;
    } else if (auto inverse = dyn_cast<tile::UnitTrilInverseOp>(op)) {
      parts.inverse = inverse;
    } else if (auto sum = dyn_cast<tile::ReduceOp>(op)) {
      auto product = sum.getInput().getDefiningOp<arith::MulFOp>();
      bool isSquare = !product || product.getLhs() == product.getRhs();
      if (isSquare)
        parts.norms.push_back(sum);
      else
        parts.ownSum = sum;
    }
    bool isRaw = isa<tile::LoadOp>(op) && !isPassedOn(&op);
    if (op.getNumResults() != 1 || isRaw)
      continue;
    tile::PlaceAttr place = at.place(op.getResult(0));
    if (place && place.getStages() > 1)
      images.push_back(op.getResult(0));
  }
  Value output = this->output ? this->output.getValue() : Value();
  llvm::erase(images, output);
  bool isWhole = tile::preparePairs(at.schedule) > 0 &&
                 tile::chainWarpgroups(at.schedule) > 0;
  if (!state || !values || !output || (!isWhole && !cut))
    return refuse();
  if (parts.inverse) {
    Value system =
        besideBroadcast(parts.inverse.getInput(), 0, parts.strengths);
    if (!system || !matchGram(system, /*strict=*/true))
      return refuse();
  }
  // Squares say what the other parts are made of.
  for (bool squares : {true, false})
    for (Value image : images) {
      auto shape = tileType(image).getShape();
      bool isSquare = shape.size() == 2 && shape[1] == chunkRows();
      if (isSquare == squares && failed(matchPart(image)))
        return failure();
    }
  bool hasDecays = parts.remaining && parts.total;
  bool erases = parts.keys && parts.system;
  if (static_cast<bool>(parts.own) != isRefined())
    return refuse();
  for (auto dot : chunkLoop.getOps<tile::DotOp>())
    if (arith::SelectOp choice = choiceOf(dot);
        choice && (!isRefined() || !isOfLastChunk(choice)))
      return refuse();
  bool isComplete = parts.queries && parts.attention &&
                    (hasDecays || (!parts.decay && parts.keys)) &&
                    (erases || !parts.inverse);
  return isComplete ? success() : refuse();
}

} // namespace kdac
