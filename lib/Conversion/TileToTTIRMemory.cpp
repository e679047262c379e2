// Memory of tile-to-ttir: tiles as masked tensors of pointers. Offsets of lines
// are 64-bit, offsets inside a line 32-bit.
#include "TileToTTIREmitter.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;

namespace kdac {

/// What the pointers' bytes are a multiple of, for Triton's vectoriser.
static void promiseAlignment(OpBuilder &b, Operation *op, int64_t align,
                             int64_t rank) {
  auto type = RankedTensorType::get({rank}, b.getI32Type());
  op->setAttr("tt.divisibility",
              DenseElementsAttr::get(type, b.getI32IntegerAttr(align)));
}

/// Pointers to a tile: the first element of every line, then along the line.
Value TTIREmitter::linePointers(const TTIRRef &ref, Value base, Value stride,
                                Shape shape, bool transposed, int64_t align) {
  int64_t lineDim = transposed ? 1 : 0;
  Value line = numbers(shape, lineDim);
  SmallVector<int64_t> lines(shapeOf(line));
  Value number = arith::ExtSIOp::create(b, tensor(lines, b.getI64Type()), line);
  Value offset = arith::MulIOp::create(b, number, splat(stride, lines));
  Value start = tt::AddPtrOp::create(b, ref.pointer, base);
  auto first = tt::AddPtrOp::create(b, splat(start, lines), offset);
  promiseAlignment(b, first, align, lines.size());
  Value inLine = numbersEverywhere(shape, 1 - lineDim);
  return tt::AddPtrOp::create(b, broadcast(first, shape), inLine);
}

Value TTIREmitter::vectorPointers(const TTIRRef &ref, Value base, Value stride,
                                  int64_t size, int64_t align) {
  auto start = tt::AddPtrOp::create(b, ref.pointer, base);
  Value number = numbers({size}, 0);
  if (matchPattern(stride, m_One())) {
    promiseAlignment(b, start, align, 1);
    return tt::AddPtrOp::create(b, splat(start, {size}), number);
  }
  Value wide =
      arith::ExtSIOp::create(b, tensor({size}, b.getI64Type()), number);
  Value offset = arith::MulIOp::create(b, wide, splat(stride, {size}));
  return tt::AddPtrOp::create(b, splat(start, {size}), offset);
}

/// The valid part of a tile; null if that is all of it.
Value TTIREmitter::validMask(ValueRange valid, Shape logical, Shape shape) {
  Value mask;
  for (auto [dim, count] : llvm::enumerate(valid)) {
    APInt constant;
    bool isConstant = matchPattern(count, m_ConstantInt(&constant));
    if (isConstant && constant.sge(logical[dim]) && logical[dim] == shape[dim])
      continue;
    // Clamped to the tile, so that it fits 32 bits.
    Value limit = arith::MinSIOp::create(b, at(count), i64(logical[dim]));
    limit = arith::MaxSIOp::create(b, limit, i64(0));
    limit = arith::TruncIOp::create(b, b.getI32Type(), limit);
    Value number = numbers(shape, dim);
    Value exists = compare(arith::CmpIPredicate::slt, number,
                           splat(limit, shapeOf(number)));
    mask = both(mask, broadcast(exists, shape));
  }
  return mask;
}

template <typename Op>
TTIREmitter::Access TTIREmitter::accessOf(Op op, RankedTensorType tile) {
  const TTIRRef &from = ref(op.getRef());
  auto type = cast<RankedTensorType>(convert(tile));
  Value base = at(op.getBase()), stride = at(op.getStride());
  Access access;
  access.pointers = tile.getRank() == 2
                        ? linePointers(from, base, stride, type.getShape(),
                                       op.getTransposed(), op.getAlign())
                        : vectorPointers(from, base, stride, type.getDimSize(0),
                                         op.getAlign());
  Value valid = validMask(op.getValid(), tile.getShape(), type.getShape());
  access.mask = both(splat(from.present, type.getShape()), valid);
  return access;
}

LogicalResult TTIREmitter::emit(tile::LoadOp op) {
  if (op.getOrder())
    return op.emitOpError() << "has no Triton IR with rows by an order";
  Access from = accessOf(op, op.getType());
  auto type = cast<RankedTensorType>(convert(op.getType()));
  Value zero = filled(type.getShape(), type.getElementType(), 0);
  values[op] = tt::LoadOp::create(b, type, from.pointers, from.mask, zero);
  const TTIRRef &source = ref(op.getRef());
  loaded.insert(source.roots.begin(), source.roots.end());
  return success();
}

/// Threads of a program exchange nothing through memory unless they wait: a
/// store to what other threads may still have to load comes after a barrier.
void TTIREmitter::orderAfterLoads(const TTIRRef &ref) {
  if (llvm::none_of(ref.roots,
                    [&](Value root) { return loaded.contains(root); }))
    return;
  gpu::BarrierOp::create(b);
  loaded.clear();
}

LogicalResult TTIREmitter::emit(tile::StoreOp op) {
  orderAfterLoads(ref(op.getRef()));
  Access to = accessOf(op, cast<RankedTensorType>(op.getValue().getType()));
  tt::StoreOp::create(b, to.pointers, at(op.getValue()), to.mask);
  return success();
}

LogicalResult TTIREmitter::emit(tile::LoadScalarOp op) {
  const TTIRRef &from = ref(op.getRef());
  Type element = cast<tt::PointerType>(from.pointer.getType()).getPointee();
  Value pointer = tt::AddPtrOp::create(b, from.pointer, at(op.getOffset()));
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(element));
  Value x = tt::LoadOp::create(b, element, pointer, from.present, zero);
  Type type = convert(op.getType());
  if (type != element && isa<FloatType>(type))
    x = arith::ExtFOp::create(b, type, x);
  else if (type != element)
    x = arith::ExtSIOp::create(b, type, x);
  values[op] =
      arith::SelectOp::create(b, from.present, x, at(op.getOtherwise()));
  return success();
}

LogicalResult TTIREmitter::emit(tile::GuardOp op) {
  TTIRRef guarded = ref(op.getRef());
  guarded.present = both(guarded.present, at(op.getCondition()));
  refs[op] = guarded;
  return success();
}

LogicalResult TTIREmitter::emit(tile::ChooseOp op) {
  TTIRRef one = ref(op.getRef()), other = ref(op.getOtherwise());
  Value condition = at(op.getCondition());
  TTIRRef chosen;
  chosen.pointer =
      arith::SelectOp::create(b, condition, one.pointer, other.pointer);
  chosen.present =
      arith::SelectOp::create(b, condition, one.present, other.present);
  chosen.roots = one.roots;
  chosen.roots.append(other.roots);
  refs[op] = chosen;
  return success();
}

} // namespace kdac
