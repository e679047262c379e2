// Products of tile-to-ttir. Triton takes tensors whole: where the tile level
// works on blocks of a matrix, this works on all of it and keeps the blocks by
// masks.
#include "TileToTTIREmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace kdac {

using arith::CmpIPredicate;

/// The least size of each dimension of a tt.dot.
static constexpr int64_t kMinDot = 16;

//===-- Rounding
//-----------------------------------------------------------===//

/// To nearest even at 10 bits of mantissa; NaN stays NaN.
Value TTIREmitter::roundToTF32(Value x) {
  Shape shape = shapeOf(x);
  Type bitsType = tensor(shape, b.getI32Type());
  Value bits = tt::BitcastOp::create(b, bitsType, x);
  Value last = arith::AndIOp::create(
      b, arith::ShRUIOp::create(b, bits, filledI32(shape, 13)),
      filledI32(shape, 1));
  Value up = arith::AddIOp::create(
      b, bits, arith::AddIOp::create(b, last, filledI32(shape, 0xfff)));
  Value cut = arith::AndIOp::create(b, up, filledI32(shape, ~0x1fff));
  Value rounded = tt::BitcastOp::create(b, x.getType(), cut);
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
  return arith::SelectOp::create(b, isNaN, x, rounded);
}

Value TTIREmitter::roundTo(Value x, Type element) {
  if (element.isF32())
    return x;
  if (isa<FloatTF32Type>(element))
    return roundToTF32(x);
  return arith::TruncFOp::create(b, tensor(shapeOf(x), element), x);
}

LogicalResult TTIREmitter::emit(arith::TruncFOp op) {
  if (!isa<RankedTensorType>(op.getType()))
    return emitElementwise(op);
  values[op] = roundTo(at(op.getIn()), getElementTypeOrSelf(op.getType()));
  return success();
}

//===-- Products
//-----------------------------------------------------------===//

Value TTIREmitter::transposed(Value x) {
  Shape shape = shapeOf(x);
  return tt::TransOp::create(b, tensor({shape[1], shape[0]}, elementOf(x)), x,
                             b.getDenseI32ArrayAttr({1, 0}));
}

/// acc + x y; no acc is zero. `operand` is the tile level's type of x and y.
Value TTIREmitter::dot(Value x, Value y, Value acc, Type operand) {
  SmallVector<int64_t> shape = {shapeOf(x)[0], shapeOf(y)[1]};
  if (!acc)
    acc = filled(shape, b.getF32Type(), 0);
  tt::InputPrecisionAttr precision;
  if (isa<FloatTF32Type>(operand))
    precision =
        tt::InputPrecisionAttr::get(b.getContext(), tt::InputPrecision::TF32);
  else if (operand.isF32())
    precision =
        tt::InputPrecisionAttr::get(b.getContext(), tt::InputPrecision::IEEE);
  return tt::DotOp::create(b, acc.getType(), x, y, acc, precision);
}

/// An error if a product is too small for Triton.
static LogicalResult checkSizes(Operation *op, ArrayRef<int64_t> sizes) {
  for (int64_t size : sizes)
    if (size < kMinDot)
      return op->emitOpError()
             << "has no Triton IR: expected at least " << kMinDot
             << " in every dimension of a product, but got " << size
             << "; use a chunk, K and V of at least " << kMinDot;
  return success();
}

LogicalResult TTIREmitter::emit(tile::DotOp op) {
  auto aType = cast<RankedTensorType>(op.getA().getType());
  auto bType = cast<RankedTensorType>(op.getB().getType());
  int64_t inner = op.getTransA() ? 0 : 1;
  if (failed(checkSizes(op,
                        {op.getType().getDimSize(0), op.getType().getDimSize(1),
                         aType.getDimSize(inner)})))
    return failure();
  Value x = withoutPadding(at(op.getA()), aType.getShape(), inner);
  Value y =
      withoutPadding(at(op.getB()), bType.getShape(), op.getTransB() ? 1 : 0);
  if (op.getTransA())
    x = transposed(x);
  if (op.getTransB())
    y = transposed(y);
  Value acc = op.getAcc() ? at(op.getAcc()) : Value();
  values[op] = dot(x, y, acc, aType.getElementType());
  return success();
}

//===-- Decayed Gram products
//----------------------------------------------===//

/// Row `index` of every block of `block` rows, for all rows of the block.
Value TTIREmitter::anchorRows(Value g, int64_t block, int64_t index) {
  int64_t rows = shapeOf(g)[0], columns = shapeOf(g)[1];
  if (block == rows)
    return broadcast(expand(rowAt(g, i32(index)), 0), shapeOf(g));
  SmallVector<int64_t> split = {rows / block, block, columns};
  Type element = elementOf(g);
  Value blocks = tt::ReshapeOp::create(b, tensor(split, element), g);
  Value number = numbers(split, 1);
  Value isAnchor =
      compare(CmpIPredicate::eq, number, filledI32(shapeOf(number), index));
  Value anchors = sum(keep(broadcast(isAnchor, split), blocks), 1);
  Value repeated = broadcast(expand(anchors, 1), split);
  return tt::ReshapeOp::create(b, tensor(shapeOf(g), element), repeated);
}

/// x 2^(to - from) where `kept`, else 0, rounded. Null `to`: no decay.
Value TTIREmitter::scaled(Value x, Value from, Value to, Value kept,
                          RankedTensorType logical, Type operand) {
  if (to) {
    Value decay = math::Exp2Op::create(b, arith::SubFOp::create(b, to, from));
    x = arith::MulFOp::create(b, x, decay);
  }
  // Exponents of other rows may be positive: dropped before anything adds.
  if (kept)
    x = keep(broadcast(kept, shapeOf(x)), x);
  return roundTo(withoutPadding(x, logical.getShape(), 1), operand);
}

/// Where rows i and j lie in the same block, a power of two of rows.
Value TTIREmitter::sameBlock(int64_t rows, int64_t block) {
  SmallVector<int64_t> square = {rows, rows};
  Value differ = arith::XOrIOp::create(b, numbersEverywhere(square, 0),
                                       numbersEverywhere(square, 1));
  return compare(CmpIPredicate::slt, differ, filledI32(square, block));
}

LogicalResult TTIREmitter::emit(tile::DecayedGramOp op) {
  auto logical = cast<RankedTensorType>(op.getRhs().getType());
  int64_t rows = logical.getDimSize(0), leaf = op.getLeaf();
  Type operand = op.getOperand();
  if (failed(checkSizes(op, logical.getShape())))
    return failure();
  Value y = at(op.getRhs()), g = at(op.getDecay());
  SmallVector<Value> sums(op.getLhs().size());
  auto addProducts = [&](Value anchor, Value left, Value right, Value kept) {
    Value factor = scaled(y, g, anchor, right, logical, operand);
    for (auto [s, x] : llvm::enumerate(op.getLhs())) {
      Value product = dot(
          scaled(at(x), anchor, anchor ? g : Value(), left, logical, operand),
          transposed(factor), {}, operand);
      if (kept)
        product = keep(kept, product);
      sums[s] =
          sums[s] ? Value(arith::AddFOp::create(b, sums[s], product)) : product;
    }
  };
  Value row = numbers({rows, 1}, 0);
  Shape column = shapeOf(row);
  // Halving anchors: the second half of a block of 2h rows against the first.
  for (int64_t half = rows / 2; half >= leaf; half /= 2) {
    Value inBlock = arith::AndIOp::create(b, row, filledI32(column, half));
    Value second = compare(CmpIPredicate::ne, inBlock, filledI32(column, 0));
    Value first = compare(CmpIPredicate::eq, inBlock, filledI32(column, 0));
    bool whole = 2 * half == rows;
    addProducts(anchorRows(g, 2 * half, half - 1), second, first,
                whole ? Value() : sameBlock(rows, 2 * half));
  }
  // Leaves, anchored at their first row; one row has no decay.
  Value anchor = leaf > 1 ? anchorRows(g, leaf, 0) : Value();
  SmallVector<int64_t> square = {rows, rows};
  Value i = numbersEverywhere(square, 0), j = numbersEverywhere(square, 1);
  Value inLeaf = both(sameBlock(rows, leaf), compare(CmpIPredicate::sle, j, i));
  addProducts(anchor, {}, {}, inLeaf);
  Value belowDiagonal = compare(CmpIPredicate::slt, j, i);
  for (auto [s, strict] : llvm::enumerate(op.getStrict()))
    values[op.getResult(s)] = strict ? keep(belowDiagonal, sums[s]) : sums[s];
  return success();
}

//===-- Inverse
//------------------------------------------------------------===//

/// Inverts all diagonal blocks of I + `lower` at once by forward substitution:
/// once row `done` of every block is final, each later row i of the block loses
/// L[i, done] times it.
Value TTIREmitter::invertBlocks(Value lower, int64_t block) {
  Shape shape = shapeOf(lower);
  int64_t rows = shape[0];
  Value inBlock = block < rows ? sameBlock(rows, block) : Value();
  if (inBlock)
    lower = keep(inBlock, lower);
  Type element = elementOf(lower);
  Value isDiagonal = compare(CmpIPredicate::eq, numbersEverywhere(shape, 0),
                             numbersEverywhere(shape, 1));
  Value identity = arith::SelectOp::create(
      b, isDiagonal, filled(shape, element, 1), filled(shape, element, 0));
  auto isAt = [&](int64_t dim, Value done) {
    Value number = numbers(shape, dim);
    Shape line = shapeOf(number);
    Value local = arith::AndIOp::create(b, number, filledI32(line, block - 1));
    return broadcast(compare(CmpIPredicate::eq, local, splat(done, line)),
                     shape);
  };
  auto loop = scf::ForOp::create(b, i32(0), i32(block - 1), i32(1),
                                 ValueRange{identity});
  loop->setAttr("tt.num_stages", b.getI32IntegerAttr(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  Value done = loop.getInductionVar(), x = loop.getRegionIterArg(0);
  // Other blocks are zero: one sum takes a row or column out of every block.
  Value factor = sum(keep(isAt(1, done), lower), 1);
  Value row = sum(keep(isAt(0, done), x), 0);
  Value product = arith::MulFOp::create(b, broadcast(expand(factor, 1), shape),
                                        broadcast(expand(row, 0), shape));
  if (inBlock)
    product = keep(inBlock, product);
  scf::YieldOp::create(b, Value(arith::SubFOp::create(b, x, product)));
  return loop.getResult(0);
}

/// Diagonal blocks of 16 rows, then pairs of blocks: with X the inverse of both
/// and N what lies below the first and left of the second, X - X N X.
LogicalResult TTIREmitter::emit(tile::UnitTrilInverseOp op) {
  Value input = at(op.getInput());
  Shape shape = shapeOf(input);
  int64_t rows = shape[0];
  Value i = numbersEverywhere(shape, 0), j = numbersEverywhere(shape, 1);
  Value lower = keep(compare(CmpIPredicate::slt, j, i), input);
  lower = withoutPadding(lower, op.getType().getShape(), 0);
  int64_t block = std::min(rows, kMinDot);
  Value x = invertBlocks(lower, block);
  for (; block < rows; block *= 2) {
    Value differ = arith::XOrIOp::create(b, i, j);
    Value isBelow =
        both(compare(CmpIPredicate::sge, differ, filledI32(shape, block)),
             compare(CmpIPredicate::slt, differ, filledI32(shape, 2 * block)));
    Type f32 = b.getF32Type();
    Value below = dot(keep(isBelow, lower), x, {}, f32);
    x = arith::SubFOp::create(b, x, dot(x, below, {}, f32));
  }
  values[op] = x;
  return success();
}

} // namespace kdac
