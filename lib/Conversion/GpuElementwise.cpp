// Elementwise values, computed where they are consumed, and shared memory.
#include "GpuLowering.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kdac {

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool GpuLowering::hasRegisterLeaf(Value value) const {
  if (!isa<RankedTensorType>(value.getType()))
    return false;
  tile::Home where = home(value);
  if (where != tile::Home::Inline)
    return where == tile::Home::Registers;
  return llvm::any_of(value.getDefiningOp()->getOperands(),
                      [&](Value operand) { return hasRegisterLeaf(operand); });
}

void GpuLowering::sharedLeaves(Value value,
                               SmallVectorImpl<Value> &leaves) const {
  if (!isa<RankedTensorType>(value.getType()))
    return;
  tile::Home where = home(value);
  if (where == tile::Home::Shared)
    leaves.push_back(value);
  if (where != tile::Home::Inline)
    return;
  for (Value operand : value.getDefiningOp()->getOperands())
    sharedLeaves(operand, leaves);
}

Value GpuLowering::sharedAddress(int64_t offset, int64_t pitch, Type element,
                                 Coord row, Coord col, Value slot) {
  int64_t bytes = bytesOf(element);
  Value index;
  if (row.base)
    index = b.mul(row.base, pitch);
  if (col.base)
    index = index ? b.add(index, col.base) : col.base;
  Value variable = index ? b.mul(index, bytes) : Value();
  if (slot)
    variable = variable ? b.add(variable, slot) : slot;
  return b.bytes(sharedBase, variable,
                 offset + (row.offset * pitch + col.offset) * bytes);
}

GpuLowering::Values GpuLowering::loadShared(Value value, const Group &group) {
  tile::PlaceAttr at = place(value);
  Type element = tileType(value).getElementType();
  int64_t bytes = bytesOf(element);
  bool isVector = tileType(value).getRank() == 1;
  auto read = [&](Coord row, Coord col, int64_t count) {
    Value pointer =
        sharedAddress(at.getOffset(), at.getPitch(), element,
                      isVector ? Coord() : row, col, slots.lookup(value));
    return b.load(pointer, element, count,
                  std::min<int64_t>(16, count * bytes));
  };
  if (isVector || group.along == 1)
    return read(group.row, group.col, group.width);
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.push_back(read(group.row.plus(i), group.col, 1)[0]);
  return elements;
}

void GpuLowering::storeShared(Value value, const Group &group,
                              ValueRange elements) {
  tile::PlaceAttr at = place(value);
  Type element = tileType(value).getElementType();
  bool isVector = tileType(value).getRank() == 1;
  Value pointer = sharedAddress(at.getOffset(), at.getPitch(), element,
                                isVector ? Coord() : group.row, group.col,
                                slots.lookup(value));
  int64_t align = std::min<int64_t>(16, group.width * bytesOf(element));
  emitStore([this, kept = Values(elements), pointer, element, align] {
    b.store(kept, pointer, element, align);
  });
}

/// Vectors are known by their column alone.
static auto memoKey(Value value, const Group &group) {
  bool isVector = tileType(value).getRank() == 1;
  return std::make_tuple(value.getAsOpaquePointer(),
                         isVector ? Coord() : group.row, group.col, group.width,
                         isVector ? int64_t(1) : group.along);
}

void GpuLowering::remember(Value value, const Group &group,
                           const Values &elements) {
  memo[memoKey(value, group)] = elements;
}

GpuLowering::Values GpuLowering::evaluate(Value value, const Group &group) {
  bool isVector = tileType(value).getRank() == 1;
  tile::Home where = home(value);
  if (where == tile::Home::Registers) {
    ArrayRef<Value> all = registers.find(value)->second;
    int64_t first = isVector ? group.columnSlot : group.slot;
    return Values(all.slice(first, group.width));
  }
  auto key = memoKey(value, group);
  auto found = memo.find(key);
  if (found != memo.end())
    return found->second;
  if (where == tile::Home::Panels)
    llvm_unreachable("panels are read as fragments, which are remembered");
  Values result = where == tile::Home::Shared
                      ? loadShared(value, group)
                      : evaluateOp(value.getDefiningOp(), group);
  memo[key] = result;
  return result;
}

GpuLowering::Values GpuLowering::evaluateBroadcast(tile::BroadcastOp op,
                                                   const Group &group) {
  bool alongRows = op.getAlong() == 0;
  Group vector;
  vector.col = alongRows ? group.row : group.col;
  vector.columnSlot = group.columnSlot;
  bool varies = group.along == static_cast<int64_t>(op.getAlong());
  vector.width = varies ? group.width : 1;
  Values elements = evaluate(op.getInput(), vector);
  return varies ? elements : Values(group.width, elements[0]);
}

GpuLowering::Values GpuLowering::iota(tile::IotaOp op, const Group &group) {
  bool isVector = op.getResult().getType().getRank() == 1;
  int64_t dim = isVector ? 1 : op.getDim();
  Coord first = dim == 0 ? group.row : group.col;
  Values elements;
  for (int64_t i = 0; i < group.width; ++i)
    elements.push_back(b.at(first.plus(dim == group.along ? i : 0)));
  return elements;
}

GpuLowering::Values GpuLowering::evaluateOp(Operation *op, const Group &group) {
  if (auto load = dyn_cast<tile::LoadOp>(op))
    return loadGlobal(load, group);
  if (auto broadcast = dyn_cast<tile::BroadcastOp>(op))
    return evaluateBroadcast(broadcast, group);
  if (auto numbers = dyn_cast<tile::IotaOp>(op))
    return iota(numbers, group);
  if (auto splat = dyn_cast<tile::SplatOp>(op)) {
    Value scalar = scalars.lookup(splat.getScalar());
    return Values(group.width,
                  scalar.getType().isIndex() ? b.toI32(scalar) : scalar);
  }
  if (auto window = dyn_cast<tile::WindowOp>(op)) {
    Group source = group;
    source.row = group.row.plus(window.getFirst());
    return evaluate(window.getInput(), source);
  }
  if (auto row = dyn_cast<tile::RowOp>(op)) {
    Group source = group;
    source.row = {Value(), static_cast<int64_t>(row.getIndex())};
    source.along = 1;
    return evaluate(row.getInput(), source);
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto splat = cast<SplatElementsAttr>(constant.getValue());
    return Values(group.width,
                  b.f32(splat.getSplatValue<APFloat>().convertToDouble()));
  }
  if (auto once = dyn_cast<tile::OnceOp>(op))
    return evaluate(once.getInput(), group);
  // Values of narrow types already travel as exact f32.
  if (auto widened = dyn_cast<arith::ExtFOp>(op))
    return evaluate(widened.getIn(), group);

  SmallVector<Values> operands;
  for (Value operand : op->getOperands())
    operands.push_back(evaluate(operand, group));
  Values results;
  for (int64_t i = 0; i < group.width; ++i) {
    Values scalarOperands;
    for (Values &operand : operands)
      scalarOperands.push_back(operand[i]);
    results.push_back(applyScalar(op, scalarOperands));
  }
  return results;
}

/// One element of an arith or math op; also used for the scalar ops themselves.
Value GpuLowering::applyScalar(Operation *op, ValueRange operands) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](math::Exp2Op) { return b.exp2(operands[0]); })
      .Case([&](math::Log2Op) { return b.log2(operands[0]); })
      .Case([&](math::RsqrtOp) { return b.rsqrt(operands[0]); })
      .Case([&](math::AbsFOp) {
        return LLVM::FAbsOp::create(b, operands[0]).getResult();
      })
      .Case([&](math::FmaOp) {
        return b.fma(operands[0], operands[1], operands[2]);
      })
      .Case([&](arith::MulFOp) { return b.mulF(operands[0], operands[1]); })
      .Case([&](arith::AddFOp) { return b.addF(operands[0], operands[1]); })
      .Case([&](arith::DivFOp) {
        return b.mulF(operands[0], b.reciprocal(operands[1]));
      })
      .Case([&](arith::TruncFOp truncation) -> Value {
        // A rounding that is not a store's own: there and back.
        Type element = getElementTypeOrSelf(truncation.getOut().getType());
        if (isa<FloatTF32Type>(element))
          return LLVM::BitcastOp::create(b, b.getF32Type(),
                                         b.toTF32(operands[0]));
        Value narrow = arith::TruncFOp::create(b, element, operands[0]);
        return arith::ExtFOp::create(b, b.getF32Type(), narrow);
      })
      .Default([&](Operation *other) -> Value {
        OperationState state(op->getLoc(), op->getName());
        state.addOperands(operands);
        Type type = getElementTypeOrSelf(other->getResult(0).getType());
        bool isTile = isa<RankedTensorType>(other->getResult(0).getType());
        state.addTypes(isTile && type.isIndex() ? b.getI32Type() : type);
        state.addAttributes(other->getAttrs());
        state.propertiesAttr = other->getPropertiesAsAttribute();
        return b.create(state)->getResult(0);
      });
}

} // namespace kdac
