// Ops without a recurrence: on rows, attention, products with weights.
#include "InterpreterWalk.h"
#include "kdac/Reference/Attention.h"
#include "kdac/Reference/Matmul.h"
#include "kdac/Reference/Places.h"

using namespace mlir;

namespace kdac::reference {

static RowOp rowOpOf(dplr::Product kind) {
  return *parseRowOp(dplr::stringifyProduct(kind));
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
  RowOperands o = rowOperands(op, rowOpOf(op.getKind()));
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
    o.kind = rowOpOf(*kind);
  if (op.getBeta()) {
    o.beta = at(op.getBeta()).element(0);
    o.linear = at(op.getLinear()).element(0);
  }
  std::vector<double> out = runMatmul(o).out;
  keep(op.getResult(), out, {o.entries, o.columns});
  keep(op.getSums(), out, {o.entries, o.columns});
  return success();
}

} // namespace kdac::reference
