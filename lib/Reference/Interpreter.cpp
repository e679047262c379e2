#include "kdac/Reference/Interpreter.h"

#include "kdac/Dialect/Dplr.h"
#include "kdac/Reference/Attention.h"
#include "kdac/Reference/Float.h"
#include "kdac/Reference/Matmul.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/RowOps.h"

#include "llvm/ADT/TypeSwitch.h"

#include <memory>

using namespace mlir;

namespace kdac::reference {

namespace {

/// What a value is at run time: elements by flat index, or a way to compute
/// rows.
struct Tensor {
  std::function<double(int64_t)> element; ///< of stored tensors; else empty
  Rows computed;                          ///< of maps: [tokens, heads, width]
  SmallVector<int64_t> shape;

  bool isAbsent() const { return !element && !computed; }
};

std::optional<DType> dtypeOf(Type type) {
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

Gate gateOf(dplr::GateMap map) {
  switch (map) {
  case dplr::GateMap::Identity:
    return Gate::Identity;
  case dplr::GateMap::Softplus:
    return Gate::Softplus;
  case dplr::GateMap::Bounded:
    return Gate::Bounded;
  }
  llvm_unreachable("covered switch");
}

Beta betaOf(dplr::BetaMap map) {
  switch (map) {
  case dplr::BetaMap::Identity:
    return Beta::Identity;
  case dplr::BetaMap::Sigmoid:
    return Beta::Sigmoid;
  case dplr::BetaMap::TwoSigmoid:
    return Beta::TwoSigmoid;
  }
  llvm_unreachable("covered switch");
}

/// Rows (token, head) of `width` elements, tokens `tokenStride` elements apart:
/// 0 for tensors without a token dimension.
Rows stored(const Tensor &tensor, int64_t width, int64_t tokenStride) {
  return [element = tensor.element, width,
          tokenStride](int64_t token, int64_t head, double *row) {
    for (int64_t c = 0; c < width; ++c)
      row[c] = element(token * tokenStride + head * width + c);
  };
}

/// Walks one function.
class Interpreter {
public:
  explicit Interpreter(func::FuncOp function) : function(function) {}

  FailureOr<std::vector<InterpreterResult>>
  run(ArrayRef<InterpreterArgument> arguments);

private:
  LogicalResult bind(BlockArgument argument, const InterpreterArgument &given);
  LogicalResult visit(Operation &op);
  LogicalResult visit(dplr::L2NormOp op);
  LogicalResult visit(dplr::LogDecayOp op);
  LogicalResult visit(dplr::WriteStrengthOp op);
  LogicalResult visit(dplr::ShortConvOp op);
  LogicalResult visit(dplr::GatedRmsNormOp op);
  LogicalResult visit(dplr::RecurrenceOp op);
  LogicalResult visit(dplr::RmsNormOp op);
  LogicalResult visit(dplr::GatedProductOp op);
  LogicalResult visit(dplr::AddOp op);
  LogicalResult visit(dplr::GatherOp op);
  LogicalResult visit(dplr::CombineOp op);
  LogicalResult visit(dplr::LatentOp op);
  LogicalResult visit(dplr::MixOp op);
  LogicalResult visit(dplr::LatentAttentionOp op);
  LogicalResult visit(dplr::PromptAttentionOp op);
  LogicalResult visit(dplr::GroupedMatmulOp op);
  Rows matrix(Value value);
  RowOperands rowOperands(Operation *op, RowOp kind);
  LogicalResult keepRows(Value result, const RowOperands &o);
  LogicalResult bindOffsets(dplr::RecurrenceOp op, Operands &operands);
  std::vector<int64_t> indices(Value value);
  void bindPool(dplr::RecurrenceOp op, Operands &operands);
  void keepPool(dplr::RecurrenceOp op, const Operands &operands,
                const Results &results);
  FailureOr<InterpreterResult> result(Value value);

  const Tensor &at(Value value) { return values[value]; }
  Rows sequence(Value value);
  Rows headVector(Value value);
  Rows state(Value value);
  void keep(Value value, std::vector<double> data, ArrayRef<int64_t> shape);

  func::FuncOp function;
  llvm::DenseMap<Value, Tensor> values;
};

} // namespace

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

LogicalResult Interpreter::visit(dplr::L2NormOp op) {
  Tensor tensor;
  tensor.shape = at(op.getInput()).shape;
  tensor.computed = l2norm(sequence(op.getInput()), tensor.shape[2],
                           op.getEps().convertToDouble());
  values[op.getResult()] = std::move(tensor);
  return success();
}

LogicalResult Interpreter::visit(dplr::LogDecayOp op) {
  Tensor tensor;
  tensor.shape = at(op.getLogits()).shape;
  GateMap map;
  map.gate = gateOf(op.getMap());
  map.aLog = headVector(op.getALog());
  map.dtBias = headVector(op.getDtBias());
  if (op.getBound())
    map.bound = op.getBound()->convertToDouble();
  int64_t width = tensor.shape.size() == 3 ? tensor.shape[2] : 1;
  tensor.computed = logDecay(std::move(map), sequence(op.getLogits()), width);
  values[op.getResult()] = std::move(tensor);
  return success();
}

LogicalResult Interpreter::visit(dplr::WriteStrengthOp op) {
  Tensor tensor;
  tensor.shape = at(op.getInput()).shape;
  tensor.computed = writeStrength(betaOf(op.getMap()), sequence(op.getInput()));
  values[op.getResult()] = std::move(tensor);
  return success();
}

LogicalResult Interpreter::visit(dplr::GatedRmsNormOp op) {
  const Tensor &input = at(op.getInput());
  GatedNorm norm;
  norm.activation = op.getActivation() == dplr::Activation::Silu
                        ? OutputNorm::Silu
                        : OutputNorm::Sigmoid;
  norm.gate = sequence(op.getGate());
  norm.weight = stored(at(op.getWeight()), input.shape[2], 0);
  norm.eps = op.getEps().convertToDouble();
  Tensor tensor;
  tensor.shape = input.shape;
  tensor.computed = [norm, rows = sequence(op.getInput()),
                     width = input.shape[2]](int64_t token, int64_t head,
                                             double *row) {
    rows(token, head, row);
    gateRow(norm, token, head, row, width);
  };
  values[op.getResult()] = std::move(tensor);
  return success();
}

LogicalResult Interpreter::visit(dplr::ShortConvOp op) {
  SmallVector<int64_t> shape = at(op.getInput()).shape;
  SmallVector<int64_t> cacheShape = at(op.getCache()).shape;
  bool full = op.getLayout() == dplr::CacheLayout::Full;
  int64_t heads = shape[1], width = shape[2], slots = cacheShape[0];
  ShortConv conv;
  conv.input = sequence(op.getInput());
  conv.weight =
      stored(at(op.getWeight()), width * at(op.getWeight()).shape[2], 0);
  conv.width = width;
  conv.taps = at(op.getWeight()).shape[2];
  int64_t entries = full ? conv.taps : conv.taps - 1;
  std::vector<int64_t> owned = indices(op.getSlots());
  conv.offsets = indices(op.getOffsets());
  if (conv.offsets.empty()) {
    int64_t count = op.getSlots() && !owned.empty()
                        ? static_cast<int64_t>(owned.size())
                        : std::max<int64_t>(1, slots);
    for (int64_t n = 0; n <= count; ++n)
      conv.offsets.push_back(n * (shape[0] / count));
  }
  auto count = static_cast<int64_t>(conv.offsets.size()) - 1;
  for (int64_t n = static_cast<int64_t>(owned.size()); n < count; ++n)
    owned.push_back(n);
  std::vector<int64_t> sources = indices(op.getSources());
  if (sources.empty())
    sources = owned;
  auto place = [=](int64_t slot, int64_t head, int64_t channel, int64_t entry) {
    return full ? ((slot * heads + head) * width + channel) * entries + entry
                : ((slot * entries + entry) * heads + head) * width + channel;
  };
  auto element = at(op.getCache()).element;
  auto isSlot = [slots](int64_t i) { return i >= 0 && i < slots; };
  conv.before = [=](int64_t n, int64_t head, int64_t back, double *row) {
    for (int64_t c = 0; element && isSlot(sources[n]) && c < width; ++c)
      row[c] = element(place(sources[n], head, c, entries - back));
  };
  std::vector<double> after(slots * heads * width * entries, 0.0);
  for (size_t i = 0; element && i < after.size(); ++i)
    after[i] = element(static_cast<int64_t>(i));
  std::vector<double> row(static_cast<size_t>(width));
  // The newest inputs of the first `length` tokens of sequence n.
  auto put = [&](int64_t slot, int64_t n, int64_t length) {
    for (int64_t head = 0; isSlot(slot) && head < heads; ++head)
      for (int64_t e = 0; e < entries; ++e) {
        int64_t position = length - entries + e;
        std::fill(row.begin(), row.end(), 0.0);
        if (position >= 0)
          conv.input(conv.offsets[n] + position, head, row.data());
        else
          conv.before(n, head, -position, row.data());
        for (int64_t c = 0; c < width; ++c)
          after[place(slot, head, c, e)] = row[c];
      }
  };
  std::vector<int64_t> snapshots = indices(op.getSnapshots());
  std::vector<int64_t> accepted = indices(op.getAccepted());
  for (int64_t n = 0; n < count; ++n) {
    int64_t length = conv.offsets[n + 1] - conv.offsets[n];
    if (!accepted.empty())
      length = std::clamp<int64_t>(accepted[n], 0, length);
    if (snapshots.empty())
      put(owned[n], n, length);
    for (int64_t t = 0; !snapshots.empty() && isSlot(owned[n]) && t < length;
         ++t)
      put(snapshots[conv.offsets[n] + t], n, t + 1);
  }
  keep(op.getAfter(), std::move(after), cacheShape);
  Tensor tensor;
  tensor.shape = shape;
  tensor.computed = shortConv(std::move(conv));
  values[op.getResult()] = std::move(tensor);
  return success();
}

/// Given offsets, or N equal parts, N from the initial state's shape.
LogicalResult Interpreter::bindOffsets(dplr::RecurrenceOp op,
                                       Operands &operands) {
  int64_t tokens = at(op.getQ()).shape[0];
  if (op.getOffsets() && !at(op.getOffsets()).isAbsent()) {
    const Tensor &offsets = at(op.getOffsets());
    for (int64_t n = 0; n < offsets.shape[0]; ++n)
      operands.offsets.push_back(static_cast<int64_t>(offsets.element(n)));
  } else {
    int64_t count = op.getInitial() ? at(op.getInitial()).shape[0] : 1;
    if (op.getSlots())
      count = at(op.getSlots()).shape[0];
    if (count < 1 || tokens % count != 0)
      return op.emitError() << "interpreter: expected the number of tokens to "
                               "be a multiple of the sequences, but got "
                            << tokens << " and " << count;
    for (int64_t n = 0; n <= count; ++n)
      operands.offsets.push_back(n * (tokens / count));
  }
  ArrayRef<int64_t> bounds = operands.offsets;
  if (bounds.empty() || bounds.front() < 0 || bounds.back() > tokens ||
      !llvm::is_sorted(bounds))
    return op.emitError() << "interpreter: expected ascending offsets within 0 "
                             "and "
                          << tokens;
  return success();
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

/// Sequence n starts from slot sources[n]; without a slot it is skipped.
void Interpreter::bindPool(dplr::RecurrenceOp op, Operands &operands) {
  int64_t slots = at(op.getInitial()).shape[0];
  std::vector<int64_t> owned = indices(op.getSlots());
  for (int64_t n = static_cast<int64_t>(owned.size());
       n + 1 < static_cast<int64_t>(operands.offsets.size()); ++n)
    owned.push_back(n);
  std::vector<int64_t> sources = indices(op.getSources());
  if (sources.empty())
    sources = owned;
  auto isSlot = [slots](int64_t i) { return i >= 0 && i < slots; };
  for (int64_t slot : owned)
    operands.skipped.push_back(!isSlot(slot));
  operands.keepAll = !indices(op.getSnapshots()).empty();
  operands.accepted = indices(op.getAccepted());
  ArrayRef<int64_t> shape = at(op.getInitial()).shape;
  int64_t matrix = shape[2] * shape[3];
  if (Rows pool = state(op.getInitial()))
    operands.initial = [=](int64_t n, int64_t head, double *x) {
      if (isSlot(sources[n]))
        pool(sources[n], head, x);
      else
        std::fill(x, x + matrix, 0.0);
    };
}

/// The pool with the states of the call in their slots.
void Interpreter::keepPool(dplr::RecurrenceOp op, const Operands &operands,
                           const Results &results) {
  SmallVector<int64_t> shape = at(op.getInitial()).shape;
  int64_t slots = shape[0], size = shape[1] * shape[2] * shape[3];
  std::vector<double> pool(slots * size, 0.0);
  Rows before = state(op.getInitial());
  for (int64_t row = 0; before && row < slots * shape[1]; ++row)
    before(row / shape[1], row % shape[1],
           pool.data() + row * shape[2] * shape[3]);
  auto put = [&](int64_t slot, const std::vector<double> &from, int64_t row) {
    if (slot >= 0 && slot < slots)
      std::copy_n(from.begin() + row * size, size, pool.begin() + slot * size);
  };
  std::vector<int64_t> owned = indices(op.getSlots());
  std::vector<int64_t> snapshots = indices(op.getSnapshots());
  for (int64_t n = 0; n < static_cast<int64_t>(operands.skipped.size()); ++n) {
    if (operands.skipped[n])
      continue;
    if (snapshots.empty())
      put(owned.empty() ? n : owned[n], results.finalState, n);
    for (int64_t t = operands.offsets[n];
         !snapshots.empty() && t < operands.offsets[n + 1]; ++t)
      put(snapshots[t], results.states, t);
  }
  keep(op.getFinalState(), std::move(pool), shape);
}

LogicalResult Interpreter::visit(dplr::RecurrenceOp op) {
  Operands o;
  ArrayRef<int64_t> keys = at(op.getQ()).shape, writes = at(op.getV()).shape;
  o.heads = keys[1];
  o.valueHeads = writes[1];
  o.keyDim = keys[2];
  o.valueDim = writes[2];
  if (o.heads < 1 || o.valueHeads % o.heads != 0)
    return op.emitError() << "interpreter: expected value heads to be a "
                             "multiple of key heads, but got "
                          << o.valueHeads << " and " << o.heads;
  if (failed(bindOffsets(op, o)))
    return failure();
  o.q = sequence(op.getQ());
  o.k = sequence(op.getK());
  o.v = sequence(op.getV());
  o.decay = sequence(op.getDecay());
  o.perChannel = op.getDecay() && at(op.getDecay()).shape.size() == 3;
  o.beta = sequence(op.getBeta());
  o.delta = op.getDelta();
  o.a = sequence(op.getEraseA());
  o.b = sequence(op.getEraseB());
  o.initial = state(op.getInitial());
  o.layout =
      op.getLayout() == dplr::Layout::VK ? StateLayout::VK : StateLayout::KV;
  o.scale = at(op.getScale()).element(0);
  if (op.getSlots())
    bindPool(op, o);
  Results results = reference::run(o);
  int64_t sequences = static_cast<int64_t>(o.offsets.size()) - 1;
  bool vFirst = o.layout == StateLayout::VK;
  results.out.resize(keys[0] * o.valueHeads * o.valueDim, 0.0);
  keep(op.getOut(), std::move(results.out),
       {keys[0], o.valueHeads, o.valueDim});
  if (op.getSlots()) {
    keepPool(op, o, results);
    return success();
  }
  keep(op.getFinalState(), std::move(results.finalState),
       {sequences, o.valueHeads, vFirst ? o.valueDim : o.keyDim,
        vFirst ? o.keyDim : o.valueDim});
  return success();
}

/// [rows, width]
Rows Interpreter::matrix(Value value) {
  if (!value || at(value).isAbsent())
    return {};
  const Tensor &t = at(value);
  return stored(t, t.shape[1], t.shape[1]);
}

RowOperands Interpreter::rowOperands(Operation *op, RowOp kind) {
  RowOperands o;
  o.op = kind;
  o.tokens = at(op->getOperand(0)).shape[0];
  o.width = at(op->getOperand(0)).shape[1];
  return o;
}

LogicalResult Interpreter::keepRows(Value result, const RowOperands &o) {
  keep(result, runRows(o).out, {o.tokens, o.width});
  return success();
}

LogicalResult Interpreter::visit(dplr::RmsNormOp op) {
  RowOperands o = rowOperands(op, RowOp::Norm);
  o.x = matrix(op.getInput());
  o.branch = matrix(op.getBranch());
  o.weight = stored(at(op.getWeight()), o.width, 0);
  o.eps = at(op.getEps()).element(0);
  Results results = runRows(o);
  keep(op.getSum(), std::move(results.finalState), {o.tokens, o.width});
  keep(op.getResult(), std::move(results.out), {o.tokens, o.width});
  return success();
}

LogicalResult Interpreter::visit(dplr::GatedProductOp op) {
  RowOp kind = op.getKind() == dplr::Product::Silu   ? RowOp::Silu
               : op.getKind() == dplr::Product::Situ ? RowOp::Situ
                                                     : RowOp::Sigmoid;
  RowOperands o = rowOperands(op, kind);
  o.gate = matrix(op.getGate());
  o.up = matrix(op.getUp());
  if (op.getBeta()) {
    o.beta = at(op.getBeta()).element(0);
    o.linear = at(op.getLinear()).element(0);
  }
  return keepRows(op.getResult(), o);
}

LogicalResult Interpreter::visit(dplr::AddOp op) {
  RowOperands o = rowOperands(op, RowOp::Add);
  o.x = matrix(op.getInput());
  o.branch = matrix(op.getBranch());
  return keepRows(op.getResult(), o);
}

LogicalResult Interpreter::visit(dplr::GatherOp op) {
  RowOperands o = rowOperands(op, RowOp::Gather);
  o.x = matrix(op.getInput());
  o.index = indices(op.getIndex());
  o.sources = o.tokens;
  o.tokens = at(op.getIndex()).shape[0];
  return keepRows(op.getResult(), o);
}

LogicalResult Interpreter::visit(dplr::CombineOp op) {
  RowOperands o = rowOperands(op, RowOp::Combine);
  o.x = matrix(op.getInput());
  o.index = indices(op.getIndex());
  o.scales = matrix(op.getScales());
  o.sources = o.tokens;
  o.tokens = at(op.getIndex()).shape[0];
  o.entries = at(op.getIndex()).shape[1];
  return keepRows(op.getResult(), o);
}

/// Rows that nothing goes to are those of the pages.
LogicalResult Interpreter::visit(dplr::LatentOp op) {
  RowOperands o = rowOperands(op, RowOp::Latent);
  o.x = matrix(op.getInput());
  o.rank = at(op.getWeight()).shape[0];
  o.weight = stored(at(op.getWeight()), o.rank, 0);
  o.eps = at(op.getEps()).element(0);
  o.places = at(op.getPages()).shape[0];
  PageTable table;
  table.pages = indices(op.getTable());
  table.slots = at(op.getTable()).shape[0];
  table.pagesOfSlot = at(op.getTable()).shape[1];
  table.page = static_cast<int64_t>(at(op.getPage()).element(0));
  table.rows = o.places;
  std::vector<int64_t> slots = indices(op.getSlots());
  std::vector<int64_t> positions = indices(op.getPositions());
  for (size_t t = 0; t < slots.size(); ++t)
    o.place.push_back(table.placeOf(slots[t], positions[t]));
  std::vector<double> pages = runRows(o).out;
  for (int64_t row = 0; row < o.places; ++row)
    for (int64_t c = 0; !llvm::is_contained(o.place, row) && c < o.width; ++c)
      pages[row * o.width + c] = at(op.getPages()).element(row * o.width + c);
  keep(op.getResult(), std::move(pages), {o.places, o.width});
  return success();
}

LogicalResult Interpreter::visit(dplr::MixOp op) {
  RowOperands o = rowOperands(op, RowOp::Mix);
  o.entries = o.tokens;
  o.tokens = o.sources = at(op.getInput()).shape[1];
  o.width = at(op.getInput()).shape[2];
  o.x = stored(at(op.getInput()), o.width, o.width);
  o.query = stored(at(op.getQuery()), o.width, 0);
  o.eps = at(op.getEps()).element(0);
  return keepRows(op.getResult(), o);
}

/// R is a size of a call that no tensor has: rows are as wide as they can be.
LogicalResult Interpreter::visit(dplr::LatentAttentionOp op) {
  const Tensor &query = at(op.getQuery()), &pages = at(op.getPages());
  AttentionOperands o;
  o.sequences = query.shape[0];
  o.heads = query.shape[1];
  o.width = query.shape[2];
  o.values = op.getValueWidth();
  if (o.width != static_cast<int64_t>(op.getKeyWidth()))
    return op.emitError() << "interpreter: expected rows of "
                          << op.getKeyWidth() << " elements, but got "
                          << o.width;
  o.q = sequence(op.getQuery());
  o.pages = stored(pages, o.width, o.width);
  o.pageCount = pages.shape[0];
  o.pageRows = pages.shape[1];
  o.slotCount = at(op.getTable()).shape[0];
  o.tablePitch = at(op.getTable()).shape[1];
  o.table = indices(op.getTable());
  o.slots = indices(op.getSlots());
  o.lengths = indices(op.getLengths());
  o.scale = at(op.getScale()).element(0);
  keep(op.getResult(), runAttention(o).out, {o.sequences, o.heads, o.values});
  return success();
}

/// Widths are what the tensors' shapes say.
LogicalResult Interpreter::visit(dplr::PromptAttentionOp op) {
  const Tensor &query = at(op.getQuery()), &shared = at(op.getShared());
  PromptOperands o;
  o.heads = query.shape[1];
  o.width = query.shape[2];
  o.sharedWidth = shared.shape[1];
  o.values = at(op.getExpanded()).shape[2] - (o.width - o.sharedWidth);
  o.q = sequence(op.getQuery());
  o.kv = sequence(op.getExpanded());
  o.shared = stored(shared, o.sharedWidth, o.sharedWidth);
  o.before = sequence(op.getBefore());
  o.beforeLogs = sequence(op.getBeforeLogs());
  o.offsets = indices(op.getOffsets());
  o.keyOffsets = indices(op.getKeyOffsets());
  o.later = static_cast<int64_t>(at(op.getLater()).element(0));
  o.scale = at(op.getScale()).element(0);
  Results results = runPrompt(o);
  int64_t rows = query.shape[0];
  keep(op.getResult(), results.out, {rows, o.heads, o.values});
  keep(op.getAfter(), results.out, {rows, o.heads, o.values});
  keep(op.getAfterLogs(), results.logs, {rows, o.heads});
  return success();
}

/// As many entries as there are numbers of rows; without them rows.
LogicalResult Interpreter::visit(dplr::GroupedMatmulOp op) {
  const Tensor &input = at(op.getInput()), &weights = at(op.getWeights());
  MatmulOperands o;
  o.rows = input.shape[0];
  o.width = input.shape[1];
  o.groups = weights.shape[0];
  o.columns = weights.shape[1];
  auto lines = [&](Value value) {
    Rows of = sequence(value);
    return [of, columns = o.columns](int64_t line, int64_t, double *x) {
      of(line / columns, line % columns, x);
    };
  };
  o.x = stored(input, o.width, o.width);
  o.weights = lines(op.getWeights());
  if (op.getUp())
    o.up = lines(op.getUp());
  o.tiles = indices(op.getTiles());
  o.starts = indices(op.getStarts());
  o.order = indices(op.getOrder());
  o.each = static_cast<int64_t>(at(op.getEach()).element(0));
  o.entries =
      at(op.getOrder()).isAbsent() ? o.rows : at(op.getOrder()).shape[0];
  if (std::optional<dplr::Product> kind = op.getKind())
    o.kind = *kind == dplr::Product::Silu   ? RowOp::Silu
             : *kind == dplr::Product::Situ ? RowOp::Situ
                                            : RowOp::Sigmoid;
  if (op.getBeta()) {
    o.beta = at(op.getBeta()).element(0);
    o.linear = at(op.getLinear()).element(0);
  }
  std::vector<double> out = runMatmul(o).out;
  keep(op.getResult(), out, {o.entries, o.columns});
  keep(op.getSums(), out, {o.entries, o.columns});
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
