// Promises: one tile kernel written as Triton IR, value by value. Every tile
// value becomes one tensor whose dimensions are rounded up to powers of two;
// what lies in the padding is arbitrary, and nothing that adds across elements
// or touches memory reads it.
// Does not: optimise, or know recurrences.
#ifndef KDAC_LIB_CONVERSION_TILETOTTIREMITTER_H
#define KDAC_LIB_CONVERSION_TILETOTTIREMITTER_H

#include "kdac/Dialect/Tile.h"
#include "kdac/Dialect/Triton.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include "llvm/ADT/DenseSet.h"

namespace kdac {

/// A !tile.ref: an address, and whether there is anything at it.
struct TTIRRef {
  mlir::Value pointer;
  mlir::Value present; ///< i1
  /// The kernel arguments it may come from.
  llvm::SmallVector<mlir::Value, 2> roots;
};

/// Writes one kernel. Insertion point: `b`, inside the tt.func.
class TTIREmitter {
public:
  using Value = mlir::Value;
  using Shape = llvm::ArrayRef<int64_t>;

  explicit TTIREmitter(mlir::func::FuncOp source)
      : source(source), b(source.getLoc(), source) {}

  /// Writes the kernel before its source, or says what has no Triton IR.
  mlir::LogicalResult run();

private:
  // TileToTTIR.cpp: functions, loops, scalars, elementwise ops.
  void createFunction();
  mlir::LogicalResult emitBlock(mlir::Block &block);
  mlir::LogicalResult emit(mlir::Operation *op);
  mlir::LogicalResult emit(mlir::scf::ForOp op);
  mlir::LogicalResult emit(mlir::arith::ConstantOp op);
  mlir::LogicalResult emit(mlir::arith::CeilDivSIOp op);
  mlir::LogicalResult emitElementwise(mlir::Operation *op);
  Value widened(Value i32);

  // TileToTTIRMemory.cpp: refs, loads and stores.
  struct Access {
    Value pointers, mask; ///< no mask: everything exists
  };
  template <typename Op> Access accessOf(Op op, mlir::RankedTensorType tile);
  Value linePointers(const TTIRRef &ref, Value base, Value stride, Shape shape,
                     bool transposed, int64_t align);
  Value vectorPointers(const TTIRRef &ref, Value base, Value stride,
                       int64_t size, int64_t align);
  Value validMask(mlir::ValueRange valid, Shape logical, Shape shape);
  mlir::LogicalResult emit(tile::LoadOp op);
  mlir::LogicalResult emit(tile::StoreOp op);
  mlir::LogicalResult emit(tile::LoadScalarOp op);
  mlir::LogicalResult emit(tile::GuardOp op);
  mlir::LogicalResult emit(tile::ChooseOp op);
  void orderAfterLoads(const TTIRRef &ref);

  // TileToTTIRShape.cpp: shapes, sums, and the helpers of everything else.
  mlir::LogicalResult emit(tile::SplatOp op);
  mlir::LogicalResult emit(tile::IotaOp op);
  mlir::LogicalResult emit(tile::BroadcastOp op);
  mlir::LogicalResult emit(tile::RowOp op);
  mlir::LogicalResult emit(tile::ReduceOp op);
  mlir::LogicalResult emit(tile::CumsumOp op);
  mlir::Type convert(mlir::Type type);
  mlir::RankedTensorType tensor(Shape shape, mlir::Type element);
  Shape shapeOf(Value x);
  mlir::Type elementOf(Value x);
  Value i32(int64_t value);
  Value i64(int64_t value);
  Value filled(Shape shape, mlir::Type element, double value);
  Value filledI32(Shape shape, int64_t value);
  Value splat(Value scalar, Shape shape);
  Value expand(Value x, int32_t axis);
  Value broadcast(Value x, Shape shape);
  /// i32: element (i_0, ...) is i_dim; the dimensions but `dim` are 1.
  Value numbers(Shape shape, int64_t dim);
  Value numbersEverywhere(Shape shape, int64_t dim);
  Value compare(mlir::arith::CmpIPredicate predicate, Value a, Value b);
  Value both(Value a, Value b);    ///< a and b; null stands for true
  Value keep(Value mask, Value x); ///< x where mask is set, else 0
  Value sum(Value x, int32_t axis);
  /// Row `index` (i32, a constant or not) of x along dimension 0.
  Value rowAt(Value x, Value index);
  /// x with zeros in the padding of dimension `dim`.
  Value withoutPadding(Value x, Shape logical, int64_t dim);

  // TileToTTIRProducts.cpp: products, Gram matrices, inverses.
  mlir::LogicalResult emit(tile::DotOp op);
  mlir::LogicalResult emit(tile::DecayedGramOp op);
  mlir::LogicalResult emit(tile::UnitTrilInverseOp op);
  mlir::LogicalResult emit(mlir::arith::TruncFOp op);
  Value roundTo(Value x, mlir::Type element);
  Value roundToTF32(Value x);
  Value transposed(Value x);
  Value dot(Value a, Value b, Value acc, mlir::Type operand);
  Value anchorRows(Value g, int64_t block, int64_t index);
  Value scaled(Value x, Value from, Value to, Value kept,
               mlir::RankedTensorType logical, mlir::Type operand);
  Value sameBlock(int64_t rows, int64_t block);
  Value invertBlocks(Value lower, int64_t block);

  Value at(Value tileValue) { return values.lookup(tileValue); }
  const TTIRRef &ref(Value tileRef) { return refs.find(tileRef)->second; }

  mlir::func::FuncOp source;
  mlir::ImplicitLocOpBuilder b;
  llvm::DenseMap<Value, Value> values; ///< of the tile kernel to Triton IR
  llvm::DenseMap<Value, TTIRRef> refs;
  llvm::DenseSet<Value> loaded; ///< roots of refs loaded since a barrier
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_TILETOTTIREMITTER_H
