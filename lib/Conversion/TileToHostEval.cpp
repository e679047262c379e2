// Elementwise values: one vector of elements at a time, inline values
// recomputed.
#include "TileToHostEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

Value Emitter::eval(Value tile, Point p) {
  if (const Buffer *buffer = plan.buffer(tile))
    return loadBuffer(*buffer, p);
  return compute(tile, p);
}

/// The elements of an op's result, from its operands.
Value Emitter::compute(Value tile, Point p) {
  Operation *op = tile.getDefiningOp();
  return TypeSwitch<Operation *, Value>(op)
      .Case<LoadOp>([&](LoadOp load) { return evalLoad(load, p); })
      .Case<OnceOp>([&](OnceOp once) { return eval(once.getInput(), p); })
      .Case<BroadcastOp>(
          [&](BroadcastOp broadcast) { return computeBroadcast(broadcast, p); })
      .Case<arith::ConstantOp>([&](arith::ConstantOp constant) {
        return computeConstant(constant, p);
      })
      .Case<SplatOp>([&](SplatOp op) {
        return splat(scalars.lookup(op.getScalar()), p.lanes);
      })
      .Case<WindowOp>([&](WindowOp window) {
        Value row = add(p.row, static_cast<int64_t>(window.getFirst()));
        return eval(window.getInput(), {row, p.col, p.lanes});
      })
      .Case<RowOp>([&](RowOp row) {
        Value at = index(row.getIndex());
        bool isMatrix = tileType(row.getInput()).getRank() == 2;
        return eval(row.getInput(),
                    isMatrix ? Point{at, p.col, p.lanes} : Point{{}, at, 0});
      })
      .Case<IotaOp>([&](IotaOp op) -> Value {
        if (op.getDim() == 0 && p.row)
          return splat(p.row, p.lanes);
        if (!p.lanes)
          return p.col;
        return add(splat(p.col, p.lanes), iota(p.lanes, 64));
      })
      .Default([&](Operation *op) { return computePointwise(op, p); });
}

Value Emitter::computeBroadcast(BroadcastOp op, Point p) {
  if (op.getAlong() == 1)
    return eval(op.getInput(), {{}, p.col, p.lanes});
  if (Value cached = cache.lookup(op.getResult()))
    return cached;
  return splat(eval(op.getInput(), {{}, p.row, 0}), p.lanes);
}

Value Emitter::computeConstant(arith::ConstantOp op, Point p) {
  auto elements = cast<SplatElementsAttr>(op.getValue());
  Type type = elements.getElementType();
  Value scalar;
  if (isa<FloatType>(type))
    scalar = f32(elements.getSplatValue<APFloat>().convertToDouble());
  else if (type.isIndex())
    scalar = index(elements.getSplatValue<APInt>().getSExtValue());
  else
    scalar = arith::ConstantOp::create(
        b, loc, cast<TypedAttr>(elements.getSplatValue<Attribute>()));
  return splat(scalar, p.lanes);
}

/// Clones an elementwise op onto vectors. Products may fuse with sums, nothing
/// else is reordered.
Value Emitter::computePointwise(Operation *op, Point p) {
  Values operands;
  for (Value operand : op->getOperands())
    operands.push_back(tileType(operand) ? eval(operand, p)
                                         : scalars.lookup(operand));
  if (Value value = mathOp(op, operands))
    return value;
  IRMapping map;
  map.map(op->getOperands(), operands);
  Operation *clone = b.clone(*op, map);
  Type element = scalarType(tileType(op->getResult(0)).getElementType());
  clone->getResult(0).setType(vectorOf(element, p.lanes));
  if (auto math = dyn_cast<arith::ArithFastMathInterface>(clone))
    clone->setAttr(math.getFastMathAttrName(),
                   arith::FastMathFlagsAttr::get(
                       b.getContext(), arith::FastMathFlags::contract));
  return clone->getResult(0);
}

//===-- Loops over elements -----------------------------------------------===//

/// Evaluates the row factors in the tree of `tile` once per row: LLVM cannot
/// hoist them out of the column loop past its stores.
void Emitter::cacheRowFactors(Value tile, Value row, int64_t lanes) {
  Operation *op = tile.getDefiningOp();
  if (!tileType(tile) || plan.buffer(tile) || !op || cache.contains(tile))
    return;
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    if (broadcast.getAlong() == 0)
      cache[tile] = splat(eval(broadcast.getInput(), {{}, row, 0}), lanes);
  } else if (isPointwise(op)) {
    for (Value operand : op->getOperands())
      cacheRowFactors(operand, row, lanes);
  }
}

/// Calls `body` for every vector of a tile, row by row.
void Emitter::forEachVector(RankedTensorType type,
                            llvm::function_ref<void(Point)> body,
                            ValueRange tiles) {
  if (type.getRank() == 0)
    return body({});
  int64_t cols = type.getShape().back(), lanes = lanesFor(cols, width);
  if (type.getRank() == 1)
    return loop(0, cols, lanes, [&](Value col) { body({{}, col, lanes}); });
  loop(0, type.getDimSize(0), 1, [&](Value row) {
    for (Value tile : tiles)
      cacheRowFactors(tile, row, lanes);
    loop(0, cols, lanes, [&](Value col) { body({row, col, lanes}); });
    cache.clear();
  });
}

void Emitter::emitElementwise(Value result) {
  const Buffer &to = *plan.buffer(result);
  forEachVector(
      tileType(result),
      [&](Point p) { storeBuffer(compute(result, p), to, p); },
      result.getDefiningOp()->getOperands());
}

void Emitter::copyBuffer(const Buffer &from, const Buffer &to) {
  int64_t lanes = lanesFor(from.cols, width);
  loop(0, from.rows, 1, [&](Value row) {
    loop(0, from.cols, lanes, [&](Value col) {
      Point p{row, col, lanes};
      storeBuffer(loadBuffer(from, p), to, p);
    });
  });
}

} // namespace kdac::host
