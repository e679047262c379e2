#include "BenchOracle.h"
#include "BenchAttention.h"
#include "BenchMatmul.h"
#include "BenchPrompt.h"
#include "BenchRecurrence.h"
#include "BenchRows.h"

namespace kdac::selftest {

using reference::Buffer;
using reference::Comparison;

static Status judge(Comparison comparison, double bound, int64_t width,
                    double rowFactor) {
  reference::setBounds(comparison, bound, width, rowFactor);
  if (comparison.passed())
    return Status::success();
  return Status(ErrorCode::Corrupt,
                "sampled heads: " + reference::toString(comparison));
}

Status BenchOracle::check(const Variant &v, const BenchShape &shape,
                          const BenchCall &call, Entry &entry) {
  switch (v.form) {
  case Form::Chunk:
  case Form::Step:
    return checkRecurrence(v, shape, call, entry);
  case Form::Rows:
    return checkRows(v, shape, call, entry);
  case Form::Attention:
    return checkAttention(v, shape, call, entry);
  case Form::Prompt:
    return checkPrompt(v, shape, call, entry);
  case Form::Matmul:
    return checkMatmul(v, shape, call, entry);
  }
  return Status::success();
}

const reference::Results &BenchOracle::expected(const Variant &variant,
                                                const BenchShape &shape) {
  std::string key = variantName(oracleVariant(variant)) + " " + shape.spelled();
  auto found = known.find(key);
  if (found != known.end())
    return found->second;
  known.clear(); // results of big shapes are big
  return known
      .emplace(key, reference::run(BenchRecurrence(variant, shape)
                                       .operands(patterns, sampledHeads(shape)),
                                   session.settings.threads))
      .first->second;
}

Status BenchOracle::checkRecurrence(const Variant &v, const BenchShape &shape,
                                    const BenchCall &call, Entry &entry) {
  std::vector<int64_t> heads = sampledHeads(shape);
  int64_t stateSize = v.keyDim * v.valueDim;
  StatusOr<Buffer> out =
      sampledOutput(*call.find("out"), "out", v.dtype, shape.allTokens(),
                    shape.valueHeads, v.valueDim, heads);
  int64_t states = v.snapshots ? shape.allTokens() : shape.sequences;
  StatusOr<Buffer> state = sampledOutput(
      *call.find("ht"), "ht", v.stateDtype, states, shape.valueHeads, stateSize,
      heads, v.snapshots ? shape.sequences : 0);
  if (!out.ok() || !state.ok())
    return out.ok() ? state.status() : out.status();
  session.beat();
  const reference::Results &wanted = expected(v, shape);
  session.beat();
  Comparison outError = compare(*out, wanted.out, shape.allTokens());
  Comparison stateError =
      compare(*state, v.snapshots ? wanted.states : wanted.finalState, states);
  entry.errorOut = outError.relative;
  entry.errorState = stateError.relative;
  reference::Tolerance tolerance = reference::toleranceOf(
      v, reference::difficultyOf(v, recipe), shape.longest());
  Status status = judge(outError, tolerance.out, v.valueDim, tolerance.outRow);
  return status.ok() ? judge(stateError, tolerance.state, stateSize,
                             reference::worstRowFactor)
                     : status;
}

Status BenchOracle::checkRows(const Variant &v, const BenchShape &shape,
                              const BenchCall &call, Entry &entry) {
  reference::Results expected =
      reference::runRows(BenchRows(v, shape).operands(patterns));
  session.beat();
  reference::Tolerance tolerance =
      reference::toleranceOf(v, reference::difficultyOf(v, recipe));
  int64_t rows = shape.allTokens(), width = shape.heads;
  auto judged = [&](const char *name, const std::vector<double> &wanted,
                    double bound) -> StatusOr<double> {
    StatusOr<Buffer> actual =
        sampledOutput(*call.find(name), name, v.dtype, rows, 1, width, {0});
    if (!actual.ok())
      return actual.status();
    Comparison error = compare(*actual, wanted, rows);
    Status s = judge(error, bound, width, reference::worstRowFactor);
    return s.ok() ? StatusOr<double>(error.relative) : s;
  };
  StatusOr<double> out = judged("out", expected.out, tolerance.out);
  if (!out.ok())
    return out.status();
  entry.errorOut = *out;
  if (!call.find("sum"))
    return Status::success();
  StatusOr<double> sum = judged("sum", expected.finalState, tolerance.state);
  if (sum.ok())
    entry.errorState = *sum;
  return sum.ok() ? Status::success() : sum.status();
}

Status BenchOracle::judgeOut(const Variant &v, const Comparison &error,
                             int64_t width, Entry &entry) {
  entry.errorOut = error.relative;
  reference::Tolerance tolerance =
      reference::toleranceOf(v, reference::difficultyOf(v, recipe));
  return judge(error, tolerance.out, width, tolerance.outRow);
}

Status BenchOracle::checkAttention(const Variant &v, const BenchShape &shape,
                                   const BenchCall &call, Entry &entry) {
  std::vector<int64_t> heads = sampledHeads(shape);
  reference::Results expected = reference::runAttention(
      BenchAttention(v, shape).operands(patterns, heads),
      session.settings.threads);
  session.beat();
  StatusOr<Buffer> out =
      sampledOutput(*call.find("out"), "out", v.dtype, shape.sequences,
                    shape.heads, v.valueDim, heads);
  if (!out.ok())
    return out.status();
  return judgeOut(v, compare(*out, expected.out, shape.sequences), v.valueDim,
                  entry);
}

Status BenchOracle::checkPrompt(const Variant &v, const BenchShape &shape,
                                const BenchCall &call, Entry &entry) {
  BenchPrompt form(v, shape);
  std::vector<int64_t> heads = sampledHeads(shape), rows = form.sampledRows();
  reference::Results expected = reference::runPrompt(
      form.operands(patterns, heads), session.settings.threads);
  session.beat();
  StatusOr<Buffer> all =
      sampledOutput(*call.find("out"), "out", v.dtype, shape.allTokens(),
                    shape.heads, v.valueDim, heads);
  if (!all.ok())
    return all.status();
  auto count = static_cast<int64_t>(rows.size());
  reference::Layout layout = all->layout();
  layout.tokens = count;
  Buffer out("out", ArgKind::Output, v.dtype, layout);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t head = 0; head < layout.heads; ++head)
      for (int64_t c = 0; c < layout.width; ++c)
        out.set(i, head, c, all->get(rows[static_cast<size_t>(i)], head, c));
  return judgeOut(v, compare(out, expected.out, count), v.valueDim, entry);
}

Status BenchOracle::checkMatmul(const Variant &v, const BenchShape &shape,
                                const BenchCall &call, Entry &entry) {
  BenchMatmul form(v, shape);
  std::vector<int64_t> entries = form.sampledEntries();
  reference::Results expected = reference::runMatmul(
      form.operands(patterns, entries), session.settings.threads);
  session.beat();
  auto count = static_cast<int64_t>(entries.size());
  int64_t width = shape.valueHeads;
  Buffer out("out", ArgKind::Output, v.dtype, {count, 1, width, width});
  auto bytes = static_cast<size_t>(width * dtypeSize(v.dtype));
  for (size_t i = 0; i < entries.size(); ++i)
    if (Status s = call.find("out")->download(
            static_cast<std::byte *>(out.data()) + i * bytes, bytes,
            static_cast<size_t>(entries[i]) * bytes);
        !s.ok())
      return s;
  return judgeOut(v, compare(out, expected.out, count), width, entry);
}

} // namespace kdac::selftest
