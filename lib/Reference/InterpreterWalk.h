// Promises: the walk over one dplr function that Interpreter.h promises: values
// by flat index or as rows. Does not: know its ops' meaning, which the oracles
// of this library have.
#ifndef KDAC_LIB_REFERENCE_INTERPRETERWALK_H
#define KDAC_LIB_REFERENCE_INTERPRETERWALK_H

#include "kdac/Dialect/Dplr.h"
#include "kdac/Reference/Interpreter.h"
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/RowOps.h"

namespace kdac::reference {

/// What a value is at run time: elements by flat index, or a way to compute
/// rows.
struct Tensor {
  std::function<double(int64_t)> element; ///< of stored tensors; else empty
  Rows computed;                          ///< of maps: [tokens, heads, width]
  llvm::SmallVector<int64_t> shape;

  bool isAbsent() const { return !element && !computed; }
};

/// Rows (token, head) of `width` elements, tokens `tokenStride` elements apart:
/// 0 for tensors without a token dimension.
Rows stored(const Tensor &tensor, int64_t width, int64_t tokenStride);

/// Walks one function. Interpreter.cpp has the walk, InterpretRecurrence.cpp
/// and InterpretRows.cpp what it does at each op.
class Interpreter {
public:
  explicit Interpreter(mlir::func::FuncOp function) : function(function) {}

  mlir::FailureOr<std::vector<InterpreterResult>>
  run(llvm::ArrayRef<InterpreterArgument> arguments);

private:
  mlir::LogicalResult bind(mlir::BlockArgument argument,
                           const InterpreterArgument &given);
  mlir::LogicalResult visit(mlir::Operation &op);
  mlir::LogicalResult visit(dplr::L2NormOp op);
  mlir::LogicalResult visit(dplr::LogDecayOp op);
  mlir::LogicalResult visit(dplr::WriteStrengthOp op);
  mlir::LogicalResult visit(dplr::ShortConvOp op);
  mlir::LogicalResult visit(dplr::GatedRmsNormOp op);
  mlir::LogicalResult visit(dplr::RecurrenceOp op);
  mlir::LogicalResult visit(dplr::RmsNormOp op);
  mlir::LogicalResult visit(dplr::GatedProductOp op);
  mlir::LogicalResult visit(dplr::AddOp op);
  mlir::LogicalResult visit(dplr::GatherOp op);
  mlir::LogicalResult visit(dplr::CombineOp op);
  mlir::LogicalResult visit(dplr::LatentOp op);
  mlir::LogicalResult visit(dplr::MixOp op);
  mlir::LogicalResult visit(dplr::LatentAttentionOp op);
  mlir::LogicalResult visit(dplr::PromptAttentionOp op);
  mlir::LogicalResult visit(dplr::GroupedMatmulOp op);
  Rows matrix(mlir::Value value);
  RowOperands rowOperands(mlir::Operation *op, RowOp kind);
  mlir::LogicalResult keepRows(mlir::Value result, const RowOperands &o);
  mlir::LogicalResult bindOffsets(dplr::RecurrenceOp op, Operands &operands);
  std::vector<int64_t> indices(mlir::Value value);
  void bindPool(dplr::RecurrenceOp op, Operands &operands);
  void keepPool(dplr::RecurrenceOp op, const Operands &operands,
                const Results &results);
  mlir::FailureOr<InterpreterResult> result(mlir::Value value);

  const Tensor &at(mlir::Value value) { return values[value]; }
  Rows sequence(mlir::Value value);
  Rows headVector(mlir::Value value);
  Rows state(mlir::Value value);
  void keep(mlir::Value value, std::vector<double> data,
            llvm::ArrayRef<int64_t> shape);

  mlir::func::FuncOp function;
  llvm::DenseMap<mlir::Value, Tensor> values;
};

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_INTERPRETERWALK_H
