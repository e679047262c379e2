// The recurrence and its neighbours.
#include "InterpreterWalk.h"

using namespace mlir;

namespace kdac::reference {

namespace {

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

} // namespace

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

} // namespace kdac::reference
