// Promises: short spellings for building tile programs, one op per call.
// Does not: know about recurrences.
#ifndef KDAC_LIB_TRANSFORMS_TILEBUILDER_H
#define KDAC_LIB_TRANSFORMS_TILEBUILDER_H

#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace kdac {

/// Builds tile programs at one insertion point. Tile values are f32 unless a
/// name says otherwise; `op` is the operand type of products.
class TileBuilder : public mlir::ImplicitLocOpBuilder {
public:
  /// Builds in front of `op`, at its location.
  explicit TileBuilder(mlir::Operation *op)
      : ImplicitLocOpBuilder(op->getLoc(), op) {}

  using Value = mlir::Value;
  mlir::RankedTensorType tileType(llvm::ArrayRef<int64_t> shape,
                                  mlir::Type element = {});

  // Scalars of type index and f32.
  Value index(int64_t value);
  Value addI(Value a, Value b);
  Value subI(Value a, Value b);
  Value mulI(Value a, Value b);
  Value divI(Value a, Value b);
  Value remI(Value a, Value b);
  Value minI(Value a, Value b);
  Value maxI(Value a, Value b);
  Value ceilDiv(Value a, int64_t b); ///< of an `a` that is not negative
  Value f32(double value);

  // Conditions, on tiles or scalars alike.
  Value isEqual(Value a, Value b);
  Value isLess(Value a, Value b);
  Value isWithin(Value x, Value end); ///< 0 <= x < end
  Value both(Value a, Value b);
  Value select(Value condition, Value a, Value b);

  // Elementwise f32, on tiles or scalars alike; `like` gives a constant's
  // shape.
  Value constantLike(Value like, double value);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value mul(Value a, double b);
  Value fma(Value a, Value b, Value c); ///< a * b + c, rounded once
  Value max(Value a, double b);
  Value min(Value a, double b);
  Value exp2(Value x);
  Value rsqrt(Value x);
  Value sigmoid(Value x);
  /// Relatively exact near 0, where 1 - 2 / (1 + exp(2 x)) cancels.
  Value tanh(Value x);
  /// log(1 + exp(x)), exact to f32 rounding in both tails; relatively to 7e-6
  /// when `brief`.
  Value softplus(Value x, bool brief);
  Value filled(llvm::ArrayRef<int64_t> shape, float value);
  /// Exact conversion to f32, or rounding from f32 to `element`.
  Value toF32(Value x);
  Value round(Value x, mlir::Type element);

  // Shape.
  Value splat(Value scalar, llvm::ArrayRef<int64_t> shape);
  /// x[r] as a row factor of `like`; a scalar is splat.
  Value rowFactor(Value x, Value like);
  /// x[c] as a column factor of `like`.
  Value colFactor(Value x, Value like);
  Value once(Value x);
  Value row(Value x, int64_t index);
  Value window(Value x, int64_t first, int64_t rows);
  Value sum(Value x, int64_t along);
  Value greatest(Value x, int64_t along);
  /// x where the row number is below `rows`, else 0.
  Value maskRows(Value x, Value rows);
  /// x where column < row (strict) or column <= row, else 0.
  Value maskLower(Value x, bool strict);
  Value dot(Value a, Value b, Value acc = {}, bool transA = false,
            bool transB = false);

  // Memory.
  /// `ref`, absent where `condition` does not hold.
  Value guarded(Value ref, Value condition);
  /// The integer at `at` as an index, `otherwise` where `ref` is absent.
  Value loadIndex(Value ref, Value at, Value otherwise);

  /// The f32 at `at`, 0 where `ref` is absent.
  Value loadF32(Value ref, Value at);

  // Loops; the insertion point stays behind them.
  void forEach(Value first, Value end, Value step,
               llvm::function_ref<void(Value number)> body);
  /// What `body` makes of `carried`, turn by turn.
  using LoopBody = llvm::function_ref<llvm::SmallVector<Value>(
      Value number, mlir::ValueRange carried)>;
  mlir::ValueRange carry(Value first, Value end, Value step,
                         mlir::ValueRange carried, LoopBody body);
  /// The same from 0 on, with steps of one.
  mlir::ValueRange carry(Value end, mlir::ValueRange carried, LoopBody body);
};

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_TILEBUILDER_H
