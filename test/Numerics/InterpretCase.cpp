#include "InterpretCase.h"

#include "kdac/Reference/Places.h"

using namespace mlir;

namespace kdac::reference {

namespace {

/// The shape of a kernel argument as the dplr function declares it.
std::vector<int64_t> shapeOf(const Case &c, const std::string &name) {
  const Variant &v = c.spec().variant;
  if (v.form == Form::Rows) {
    if (name == "weight" || name == "query")
      return {v.rows == RowOp::Latent ? c.rank() : c.columns()};
    if (name == "slots" || name == "positions")
      return {c.tokens()};
    if (name == "table" || name == "out") { // out: the pages before
      PageTable table = pageTableOf(c);
      return name == "out" ? std::vector{table.rows, c.columns()}
                           : std::vector{table.slots, table.pagesOfSlot};
    }
    if (v.rows == RowOp::Mix)
      return {c.entries(), c.tokens(), c.columns()};
    bool isCombine = v.rows == RowOp::Combine;
    if (name == "scales" || (name == "index" && isCombine))
      return {c.tokens(), usualEntries};
    if (name == "index")
      return {c.tokens()};
    return {picksRows(v.rows) ? c.sourceRows() : c.tokens(), c.columns()};
  }
  if (v.form == Form::Attention) {
    int64_t entries = c.find(name) ? c.find(name)->layout().width : 0;
    if (name == "q")
      return {c.sequences(), c.heads(), c.columns()};
    if (name == "pages")
      return {c.find(name)->layout().tokens / pageKeys, pageKeys, c.columns()};
    if (name == "table")
      return {c.sequences() + 2, entries / (c.sequences() + 2)};
    return {entries};
  }
  if (v.form == Form::Matmul) {
    const Buffer *buffer = c.find(name);
    if (!buffer)
      return {0};
    const Layout &layout = buffer->layout();
    if (name == "x")
      return {layout.tokens, layout.width};
    if (name == "weights" || name == "up")
      return {c.sequences(), layout.tokens / c.sequences(), layout.width};
    return {layout.width}; // tiles, starts, order
  }
  if (v.form == Form::Prompt) {
    const Buffer *buffer = c.find(name);
    bool isLogs = name == "before_logs";
    if (name == "before" || isLogs) {
      std::vector<int64_t> shape = {c.tokens(), c.heads()};
      if (!isLogs)
        shape.push_back(c.find("out")->layout().width);
      return shape;
    }
    const Layout &layout = buffer->layout();
    if (name == "shared")
      return {layout.tokens, layout.width};
    if (name == "q" || name == "kv")
      return {layout.tokens, layout.heads, layout.width};
    return {layout.width}; // offsets, key_offsets
  }
  int64_t tokens = c.tokens(), hv = c.valueHeads();
  bool channel = v.row().decay == Decay::Channel;
  if (name == "q" || name == "k" || name == "a" || name == "b")
    return {tokens, c.heads(), v.keyDim};
  if (name == "v")
    return {tokens, hv, v.valueDim};
  if (name == "beta")
    return {tokens, hv};
  if (name == "offsets")
    return {c.sequences() + 1};
  if (name == "g" && v.row().decay != Decay::HeadConstant)
    return channel ? std::vector<int64_t>{tokens, hv, v.keyDim}
                   : std::vector<int64_t>{tokens, hv};
  if (name == "dt_bias" && channel)
    return {hv, v.keyDim};
  if (name == "h0" && v.stateLayout == StateLayout::VK)
    return {c.sequences(), hv, v.valueDim, v.keyDim};
  if (name == "h0")
    return {c.sequences(), hv, v.keyDim, v.valueDim};
  return {hv}; // A_log, a constant g, dt_bias per head
}

} // namespace

FailureOr<Results> interpretCase(ModuleOp module, const Case &c) {
  std::vector<InterpreterArgument> arguments;
  for (const Arg &arg : kernelArgs(c.spec().variant))
    if (arg.kind == ArgKind::Input) {
      const Buffer *buffer = c.find(arg.name);
      arguments.push_back(
          {buffer ? buffer->data() : nullptr, shapeOf(c, arg.name)});
    }
  int64_t page = 0;
  std::vector<std::byte> pages; // zeros
  if (c.spec().variant.rows == RowOp::Latent) {
    page = pageTableOf(c).page;
    pages.resize(static_cast<size_t>(c.find("out")->bytes()));
    arguments.push_back({pages.data(), shapeOf(c, "out")});
    arguments.push_back({&page, {}});
  }
  if (c.spec().variant.form == Form::Prompt)
    arguments.push_back({&c.spec().later, {}});
  if (c.spec().variant.form == Form::Matmul)
    arguments.push_back({&c.spec().heads, {}});
  std::vector<float> scales;
  scales.reserve(2); // arguments point to them
  for (const Arg &arg : kernelArgs(c.spec().variant))
    if (arg.kind == ArgKind::Scale) {
      scales.push_back(arg.name == "scale" ? c.scale() : usualScale(arg.name));
      arguments.push_back({&scales.back(), {}});
    }
  auto results =
      interpretDplr(*module.getOps<func::FuncOp>().begin(), arguments);
  if (failed(results))
    return failure();
  if (c.spec().variant.rows == RowOp::Norm)
    std::swap((*results)[0], (*results)[1]); // the sum comes first there
  Results got;
  got.out = std::move((*results)[0].data);
  if (c.spec().variant.form == Form::Prompt)
    got.logs = std::move((*results)[2].data);
  else if (c.spec().variant.form != Form::Matmul && results->size() > 1)
    got.finalState = std::move((*results)[1].data);
  return got;
}

} // namespace kdac::reference
