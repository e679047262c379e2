#include "InterpreterWalk.h"
#include "kdac/Reference/Float.h"

#include "llvm/ADT/TypeSwitch.h"

#include <memory>

using namespace mlir;

namespace kdac::reference {

static std::optional<DType> dtypeOf(Type type) {
  return llvm::TypeSwitch<Type, std::optional<DType>>(type)
      .Case<BFloat16Type>([](auto) { return DType::BF16; })
      .Case<Float16Type>([](auto) { return DType::F16; })
      .Case<Float32Type>([](auto) { return DType::F32; })
      .Case<IntegerType>([](IntegerType t) -> std::optional<DType> {
        if (t.getWidth() != 32 && t.getWidth() != 64)
          return std::nullopt;
        return t.getWidth() == 32 ? DType::I32 : DType::I64;
      })
      .Default([](Type) { return std::nullopt; });
}

Rows stored(const Tensor &tensor, int64_t width, int64_t tokenStride) {
  return [element = tensor.element, width,
          tokenStride](int64_t token, int64_t head, double *row) {
    for (int64_t c = 0; c < width; ++c)
      row[c] = element(token * tokenStride + head * width + c);
  };
}

/// [tokens, heads, width] or [tokens, heads]; rank 1 is [heads] for all tokens.
Rows Interpreter::sequence(Value value) {
  if (!value || at(value).isAbsent())
    return {};
  const Tensor &t = at(value);
  if (t.computed)
    return t.computed;
  int64_t width = t.shape.size() == 3 ? t.shape[2] : 1;
  int64_t tokenStride = t.shape.size() == 1 ? 0 : t.shape[1] * width;
  return stored(t, width, tokenStride);
}

/// [heads, width] or [heads].
Rows Interpreter::headVector(Value value) {
  if (!value || at(value).isAbsent())
    return {};
  const Tensor &t = at(value);
  return stored(t, t.shape.size() == 2 ? t.shape[1] : 1, 0);
}

/// [N, heads, rows, cols]
Rows Interpreter::state(Value value) {
  if (!value || at(value).isAbsent())
    return {};
  const Tensor &t = at(value);
  int64_t matrix = t.shape[2] * t.shape[3];
  return stored(t, matrix, t.shape[1] * matrix);
}

/// [rows, width]
Rows Interpreter::matrix(Value value) {
  if (!value || at(value).isAbsent())
    return {};
  const Tensor &t = at(value);
  return stored(t, t.shape[1], t.shape[1]);
}

/// The integers of a vector, empty when it is absent.
std::vector<int64_t> Interpreter::indices(Value value) {
  std::vector<int64_t> result;
  if (!value || at(value).isAbsent())
    return result;
  for (int64_t i = 0; i < llvm::product_of(at(value).shape); ++i)
    result.push_back(static_cast<int64_t>(at(value).element(i)));
  return result;
}

void Interpreter::keep(Value value, std::vector<double> data,
                       ArrayRef<int64_t> shape) {
  auto shared = std::make_shared<std::vector<double>>(std::move(data));
  Tensor tensor;
  tensor.element = [shared](int64_t i) { return (*shared)[i]; };
  tensor.shape.assign(shape.begin(), shape.end());
  values[value] = std::move(tensor);
}

LogicalResult Interpreter::bind(BlockArgument argument,
                                const InterpreterArgument &given) {
  auto complain = [&]() {
    return function.emitError()
           << "interpreter: argument " << argument.getArgNumber() << " ";
  };
  auto tensorType = dyn_cast<RankedTensorType>(argument.getType());
  ArrayRef<int64_t> expected;
  if (tensorType)
    expected = tensorType.getShape();
  if (given.shape.size() != expected.size())
    return complain() << "expected rank " << expected.size() << ", but got "
                      << given.shape.size();
  for (auto [want, got] : llvm::zip(expected, given.shape))
    if (got < 0 || (!ShapedType::isDynamic(want) && want != got))
      return complain() << "expected shape of " << argument.getType()
                        << ", but got a dimension of " << got;
  std::optional<DType> dtype =
      dtypeOf(getElementTypeOrSelf(argument.getType()));
  if (!dtype)
    return complain() << "has the unsupported type " << argument.getType();
  Tensor tensor;
  tensor.shape.assign(given.shape.begin(), given.shape.end());
  if (given.data)
    tensor.element = [data = given.data, dtype = *dtype](int64_t i) {
      return load(data, dtype, i);
    };
  values[argument] = std::move(tensor);
  return success();
}

LogicalResult Interpreter::visit(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<dplr::L2NormOp, dplr::LogDecayOp, dplr::WriteStrengthOp,
            dplr::ShortConvOp, dplr::GatedRmsNormOp, dplr::RecurrenceOp,
            dplr::RmsNormOp, dplr::GatedProductOp, dplr::AddOp, dplr::GatherOp,
            dplr::CombineOp, dplr::LatentOp, dplr::MixOp,
            dplr::LatentAttentionOp, dplr::PromptAttentionOp,
            dplr::GroupedMatmulOp>([&](auto typed) { return visit(typed); })
      .Default([](Operation *other) {
        return other->emitError()
               << "interpreter: expected a dplr op, but got '"
               << other->getName() << "'";
      });
}

FailureOr<InterpreterResult> Interpreter::result(Value value) {
  const Tensor &t = at(value);
  InterpreterResult result;
  result.shape.assign(t.shape.begin(), t.shape.end());
  int64_t width = t.shape.size() == 3 ? t.shape[2] : 1;
  int64_t heads = t.shape.size() > 1 ? t.shape[1] : 1;
  int64_t count = 1;
  for (int64_t extent : t.shape)
    count *= extent;
  result.data.resize(count);
  for (int64_t i = 0; t.element && i < count; ++i)
    result.data[i] = t.element(i);
  for (int64_t row = 0; t.computed && row * width < count; ++row)
    t.computed(row / heads, row % heads, result.data.data() + row * width);
  if (t.isAbsent())
    return function.emitError()
           << "interpreter: an absent argument is returned";
  return result;
}

FailureOr<std::vector<InterpreterResult>>
Interpreter::run(ArrayRef<InterpreterArgument> arguments) {
  if (!function.getBody().hasOneBlock())
    return function.emitError() << "interpreter: expected one block";
  if (arguments.size() != function.getNumArguments())
    return function.emitError()
           << "interpreter: expected " << function.getNumArguments()
           << " arguments, but got " << arguments.size();
  for (auto [argument, given] : llvm::zip(function.getArguments(), arguments))
    if (failed(bind(argument, given)))
      return failure();
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator())
    if (failed(visit(op)))
      return failure();
  std::vector<InterpreterResult> results;
  for (Value value : block.getTerminator()->getOperands()) {
    FailureOr<InterpreterResult> one = result(value);
    if (failed(one))
      return failure();
    results.push_back(std::move(*one));
  }
  return results;
}

FailureOr<std::vector<InterpreterResult>>
interpretDplr(func::FuncOp function, ArrayRef<InterpreterArgument> arguments) {
  return Interpreter(function).run(arguments);
}

} // namespace kdac::reference
