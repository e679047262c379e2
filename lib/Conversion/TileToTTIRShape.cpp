// Shapes and sums of tile-to-ttir, and the short spellings of the rest of it.
#include "TileToTTIREmitter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

//===-- Types and short spellings
//------------------------------------------===//

RankedTensorType TTIREmitter::tensor(Shape shape, Type element) {
  return RankedTensorType::get(shape, element);
}

Type TTIREmitter::convert(Type type) {
  if (isa<IndexType>(type))
    return b.getI64Type();
  if (isa<FloatTF32Type>(type)) // there is no such type: rounded f32
    return b.getF32Type();
  if (auto ref = dyn_cast<tile::RefType>(type))
    return tt::PointerType::get(b.getContext(), convert(ref.getElementType()));
  auto tile = dyn_cast<RankedTensorType>(type);
  if (!tile)
    return type;
  SmallVector<int64_t> shape;
  for (int64_t size : tile.getShape())
    shape.push_back(llvm::PowerOf2Ceil(size));
  return tensor(shape, convert(tile.getElementType()));
}

TTIREmitter::Shape TTIREmitter::shapeOf(Value x) {
  auto type = dyn_cast<RankedTensorType>(x.getType());
  return type ? type.getShape() : Shape();
}

Type TTIREmitter::elementOf(Value x) {
  return getElementTypeOrSelf(x.getType());
}

Value TTIREmitter::i32(int64_t value) {
  return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
}

Value TTIREmitter::i64(int64_t value) {
  return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
}

Value TTIREmitter::filled(Shape shape, Type element, double value) {
  Attribute scalar = b.getFloatAttr(element, value);
  if (shape.empty())
    return arith::ConstantOp::create(b, cast<TypedAttr>(scalar));
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(tensor(shape, element), scalar));
}

Value TTIREmitter::filledI32(Shape shape, int64_t value) {
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(tensor(shape, b.getI32Type()),
                                b.getI32IntegerAttr(value)));
}

Value TTIREmitter::splat(Value scalar, Shape shape) {
  return tt::SplatOp::create(b, tensor(shape, scalar.getType()), scalar);
}

Value TTIREmitter::expand(Value x, int32_t axis) {
  SmallVector<int64_t> shape(shapeOf(x));
  shape.insert(shape.begin() + axis, 1);
  return tt::ExpandDimsOp::create(b, tensor(shape, elementOf(x)), x, axis);
}

Value TTIREmitter::broadcast(Value x, Shape shape) {
  if (shapeOf(x) == shape)
    return x;
  return tt::BroadcastOp::create(b, tensor(shape, elementOf(x)), x);
}

Value TTIREmitter::numbers(Shape shape, int64_t dim) {
  int64_t size = shape[dim];
  Value x = tt::MakeRangeOp::create(b, tensor({size}, b.getI32Type()), 0, size);
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    if (d != dim)
      x = expand(x, d);
  return x;
}

Value TTIREmitter::numbersEverywhere(Shape shape, int64_t dim) {
  return broadcast(numbers(shape, dim), shape);
}

Value TTIREmitter::compare(arith::CmpIPredicate predicate, Value x, Value y) {
  return arith::CmpIOp::create(b, predicate, x, y);
}

Value TTIREmitter::both(Value x, Value y) {
  if (!x || !y)
    return x ? x : y;
  return arith::AndIOp::create(b, x, y);
}

Value TTIREmitter::keep(Value mask, Value x) {
  return arith::SelectOp::create(b, mask, x,
                                 filled(shapeOf(x), elementOf(x), 0));
}

Value TTIREmitter::sum(Value x, int32_t axis) {
  SmallVector<int64_t> rest(shapeOf(x));
  rest.erase(rest.begin() + axis);
  Type element = elementOf(x);
  Type type = rest.empty() ? element : Type(tensor(rest, element));
  auto reduce = tt::ReduceOp::create(b, type, x, axis);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&reduce.getCombine(), {}, {element, element},
                               {b.getLoc(), b.getLoc()});
  tt::ReduceReturnOp::create(b, arith::AddFOp::create(b, block->getArgument(0),
                                                      block->getArgument(1)));
  return reduce;
}

/// Triton takes no rows out of tensors: a sum with zeros, which is exact.
Value TTIREmitter::rowAt(Value x, Value index) {
  SmallVector<int64_t> line(shapeOf(x).size(), 1);
  line[0] = shapeOf(x)[0];
  Value isRow = compare(arith::CmpIPredicate::eq, numbers(shapeOf(x), 0),
                        splat(index, line));
  return sum(keep(broadcast(isRow, shapeOf(x)), x), 0);
}

Value TTIREmitter::withoutPadding(Value x, Shape logical, int64_t dim) {
  Shape shape = shapeOf(x);
  if (shape[dim] == logical[dim])
    return x;
  Value number = numbers(shape, dim);
  Value exists = compare(arith::CmpIPredicate::slt, number,
                         filledI32(shapeOf(number), logical[dim]));
  return keep(broadcast(exists, shape), x);
}

//===-- Ops
//----------------------------------------------------------------===//

static ArrayRef<int64_t> logicalShape(Value tileValue) {
  return cast<RankedTensorType>(tileValue.getType()).getShape();
}

LogicalResult TTIREmitter::emit(tile::SplatOp op) {
  auto type = cast<RankedTensorType>(convert(op.getType()));
  values[op] = splat(at(op.getScalar()), type.getShape());
  return success();
}

LogicalResult TTIREmitter::emit(tile::IotaOp op) {
  auto type = cast<RankedTensorType>(convert(op.getType()));
  values[op] = arith::ExtSIOp::create(
      b, type, numbersEverywhere(type.getShape(), op.getDim()));
  return success();
}

LogicalResult TTIREmitter::emit(tile::BroadcastOp op) {
  auto type = cast<RankedTensorType>(convert(op.getType()));
  // A row factor is a column of the tile and the other way round.
  Value line = expand(at(op.getInput()), op.getAlong() == 0 ? 1 : 0);
  values[op] = broadcast(line, type.getShape());
  return success();
}

LogicalResult TTIREmitter::emit(tile::RowOp op) {
  values[op] = rowAt(at(op.getInput()), i32(op.getIndex()));
  return success();
}

LogicalResult TTIREmitter::emit(tile::ReduceOp op) {
  if (op.getGreatest())
    return op.emitOpError() << "has no Triton IR; only sums have";
  int64_t along = op.getAlong();
  Value x =
      withoutPadding(at(op.getInput()), logicalShape(op.getInput()), along);
  values[op] = sum(x, along);
  return success();
}

/// A row is the sum of those before it: padding comes last.
LogicalResult TTIREmitter::emit(tile::CumsumOp op) {
  Value x = at(op.getInput());
  Type element = elementOf(x);
  auto scan = tt::ScanOp::create(b, x.getType(), x, 0, false);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&scan.getCombine(), {}, {element, element},
                               {b.getLoc(), b.getLoc()});
  tt::ScanReturnOp::create(b, arith::AddFOp::create(b, block->getArgument(0),
                                                    block->getArgument(1)));
  values[op] = scan;
  return success();
}

} // namespace kdac
