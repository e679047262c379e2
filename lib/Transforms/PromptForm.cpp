// The kernel of form prompt. A program has a tile of rows of one sequence and
// one head; its loop goes through the keys that the last of them sees, a turn
// of some keys at a time, and carries for every row
//
//   top    the largest score so far, in units of log2
//   total  the sum of exp2(score - top)
//   sum    the same times the values
//
// They begin with what other calls made of keys before these: an average of
// weight 2^log is one key more with that score.
#include "PromptForm.h"
#include "KernelFunction.h"
#include "OnlyOp.h"
#include "kdac/Dialect/ElementType.h"

#include <limits>

using namespace mlir;

namespace kdac {

static constexpr int64_t kAccess =
    16; ///< bytes that rows begin at multiples of
static constexpr float kLowest = std::numeric_limits<float>::lowest();

static Type elementOf(dplr::PromptAttentionOp op) {
  return cast<RankedTensorType>(op.getQuery().getType()).getElementType();
}

static Variant variantOf(dplr::PromptAttentionOp op) {
  Variant v;
  v.form = Form::Prompt;
  v.dtype = floatDType(elementOf(op));
  return v;
}

namespace {

/// Rows of a program, keys of a turn, the warps that divide the rows.
struct Shares {
  int64_t rows, keys, warps, stages;

  /// Bytes of shared memory: keys and values, which end 16 bytes later
  /// (tile-place); queries, unless they are gone by then to wait for tensor
  /// cores; weights.
  int64_t bytes(dplr::PromptAttentionOp op) const {
    int64_t size = tile::bytesOf(elementOf(op));
    int64_t key = op.getKeyWidth() * size + 2 * kAccess;
    int64_t value = op.getValueWidth() * size + kAccess;
    int64_t queries = tile::multipliesByThreads(elementOf(op)) ? rows : 0;
    return stages * keys * (key + value) + queries * key +
           rows * (keys * size + kAccess);
  }
  /// The same of panels without weights, which wgmma takes from registers.
  int64_t panelBytes(dplr::PromptAttentionOp op) const {
    int64_t width = op.getKeyWidth() + op.getValueWidth();
    return (stages * keys * width + rows * op.getKeyWidth()) *
           tile::bytesOf(elementOf(op));
  }
  /// Registers of each thread for sums, and for 16 queries of its warp.
  int64_t sums(dplr::PromptAttentionOp op) const {
    return rows * op.getValueWidth() / (32 * warps);
  }
  int64_t queries(dplr::PromptAttentionOp op) const {
    bool isHeld = !tile::multipliesByThreads(elementOf(op));
    return isHeld ? op.getKeyWidth() / 4 : 0;
  }
};

/// Leave enough of 255 for scores and addresses.
constexpr int64_t kMostSums = 64, kMostQueries = 144;

} // namespace

static FailureOr<tile::ScheduleAttr>
choosePrompt(dplr::PromptAttentionOp op, const Target &target, int64_t chunk) {
  constexpr Shares gpu[] = {{128, 64, 8, 2}, {64, 64, 4, 2}, {64, 32, 4, 2},
                            {64, 32, 8, 2},  {64, 16, 8, 2}, {32, 16, 8, 2},
                            {32, 16, 8, 1}};
  constexpr Shares host[] = {{64, 64, 1, 1}, {64, 32, 1, 1}};
  auto scheduleOf = [&](const Shares &s, Type operand, StringRef roles) {
    return tile::ScheduleAttr::get(op.getContext(), target.name, "attention",
                                   s.keys, 1, s.rows, s.warps, s.stages,
                                   operand, operand, roles,
                                   /*refined=*/false);
  };
  // 208 KiB at 192 and 128 columns.
  constexpr Shares warpgroups = {128, 128, 8, 2};
  bool hasWarpgroups = target.hasWarpgroupProducts && elementOf(op).isBF16() &&
                       warpgroups.sums(op) <= kMostSums &&
                       warpgroups.panelBytes(op) <= target.sharedBytesPerBlock;
  if (hasWarpgroups && (chunk == 0 || chunk == warpgroups.keys))
    return scheduleOf(warpgroups, elementOf(op), "warpgroups");
  bool isHost = target.kind == TargetKind::Host;
  for (const Shares &s : isHost ? ArrayRef(host) : ArrayRef(gpu)) {
    bool fits =
        isHost || (s.bytes(op) <= target.sharedBytesPerBlock &&
                   s.sums(op) <= kMostSums && s.queries(op) <= kMostQueries);
    if (fits && (chunk == 0 || s.keys == chunk))
      return scheduleOf(
          s, isHost ? Type(Float32Type::get(op.getContext())) : elementOf(op),
          "fused");
  }
  if (chunk == 0)
    return op.emitOpError()
           << "has keys of " << op.getKeyWidth() << " elements of "
           << elementOf(op) << ", more than a block holds on " << target.name
           << "; use narrower ones, or the host";
  return op.emitOpError()
         << "has no turn of " << chunk << " keys on " << target.name
         << "; 16, 32 and 64 work where a block holds them, 128 by wgmma";
}

LogicalResult selectPrompt(func::FuncOp function, const Target &target,
                           int64_t keys) {
  FailureOr<dplr::PromptAttentionOp> op =
      onlyOp<dplr::PromptAttentionOp>(function);
  if (failed(op))
    return failure();
  FailureOr<tile::ScheduleAttr> schedule = choosePrompt(*op, target, keys);
  if (failed(schedule))
    return failure();
  function->setAttr(tile::kScheduleAttr, *schedule);
  return success();
}

namespace {

class PromptForm : public KernelFunction {
public:
  PromptForm(func::FuncOp source, dplr::PromptAttentionOp op,
             tile::ScheduleAttr schedule)
      : KernelFunction(source, "", variantOf(op), schedule),
        rows(schedule.getVTile()), turnKeys(schedule.getChunk()),
        values(op.getValueWidth()), rest(op.getKeyWidth() - op.getValueWidth()),
        element(elementOf(op)), operand(schedule.getOperand()) {
    setGrid("N * H * ceildiv(T, " + std::to_string(rows) + ")");
  }
  void build();

private:
  void locate();
  SmallVector<Value> carriedBefore();
  SmallVector<Value> turn(Value number, ValueRange carried, bool isMasked);
  SmallVector<Value> goThrough(Value first, Value end, ValueRange carried,
                               bool isMasked);
  Value maskOf(Value firstKey);
  void store(ValueRange carried);
  Value loadTile(StringRef ref, Value base, Value valid, Value width,
                 int64_t rows, int64_t columns);
  Value choose(Value condition, float x, float y) {
    return b.select(condition, b.f32(x), b.f32(y));
  }
  Value boundOf(StringRef offsets, Value n) {
    return b.loadIndex(arg(offsets), n, b.index(0));
  }

  int64_t rows;         ///< of a program
  int64_t turnKeys;     ///< of one turn of its loop
  int64_t values, rest; ///< widths of tiles: of a value, of a key's shared part
  Type element, operand; ///< in memory, of products
  Value own;             ///< elements of a head's part of a key
  Value head;            ///< of the program
  Value count;           ///< rows that it has
  Value row, key;        ///< the first of them, and the sequence's first key
  Value keys;            ///< that its last row sees
  Value ahead;           ///< keys that its first row sees beside its own
  Value query, queryRest;
};

} // namespace

/// What the program's rows are, the last ones first: they see the most keys.
/// Sequences shorter than the longest have programs without rows.
void PromptForm::locate() {
  Value zero = b.index(0), one = b.index(1);
  Value tiles = b.ceilDiv(arg("T"), rows);
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  Value tile = b.subI(b.subI(tiles, one), b.remI(id, tiles));
  Value share = b.divI(id, tiles);
  head = b.remI(share, arg("H"));
  Value n = b.divI(share, arg("H")), next = b.addI(n, one);
  Value firstRow = boundOf("offsets", n), endRow = boundOf("offsets", next);
  key = boundOf("key_offsets", n);
  Value endKey = boundOf("key_offsets", next);
  Value begin = b.mulI(tile, b.index(rows));
  row = b.addI(firstRow, begin);
  count = b.maxI(zero, b.minI(b.index(rows), b.subI(endRow, row)));
  // The last row of the sequence sees all its keys.
  Value all = b.subI(endKey, key), allRows = b.subI(endRow, firstRow);
  ahead = b.addI(b.subI(b.addI(all, arg("later")), allRows), begin);
  keys = b.minI(all, b.addI(ahead, count));
  Value isSome = b.isLess(zero, count);
  keys = b.select(isSome, b.maxI(zero, keys), zero);
  own = b.subI(arg("D"), arg("R"));
}

/// `width` columns of rows of `ref` from `base` on, of which `valid` exist.
Value PromptForm::loadTile(StringRef ref, Value base, Value valid, Value width,
                           int64_t rows, int64_t columns) {
  return tile::LoadOp::create(b, b.tileType({rows, columns}, element), arg(ref),
                              base, arg((ref + "_stride").str()),
                              ValueRange{valid, width}, kAccess, false);
}

/// Without keys of other calls: no weight yet, and a score below any other.
SmallVector<Value> PromptForm::carriedBefore() {
  Value entry = b.addI(b.mulI(row, arg("H")), head);
  Value logs =
      tile::LoadOp::create(b, b.tileType({rows}), arg("before_logs"), entry,
                           arg("H"), ValueRange{count}, 4, false);
  Value sums = tile::LoadOp::create(
      b, b.tileType({rows, values}), arg("before"), b.mulI(entry, arg("E")),
      b.mulI(arg("H"), arg("E")), ValueRange{count, arg("E")}, kAccess, false);
  Value isGiven = tile::PresentOp::create(b, b.getI1Type(), arg("before"));
  Value top = b.add(logs, b.splat(choose(isGiven, 0, kLowest), {rows}));
  return {top, b.splat(choose(isGiven, 1, 0), {rows}), sums};
}

/// i1 [rows, keys]: the row sees the key, which is one of those from `firstKey`
/// on.
Value PromptForm::maskOf(Value firstKey) {
  SmallVector<int64_t> shape = {rows, turnKeys};
  auto type = b.tileType(shape, b.getIndexType());
  auto plus = [&](Value x, Value y) {
    return arith::AddIOp::create(b, x, y).getResult();
  };
  Value seen =
      plus(tile::IotaOp::create(b, type, 0),
           b.splat(b.subI(b.addI(ahead, b.index(1)), firstKey), shape));
  seen =
      arith::MinSIOp::create(b, seen, b.splat(b.subI(keys, firstKey), shape));
  return b.isLess(tile::IotaOp::create(b, type, 1), seen);
}

/// Scores of a turn's keys, then what they add.
SmallVector<Value> PromptForm::turn(Value number, ValueRange carried,
                                    bool isMasked) {
  Value top = carried[0], total = carried[1], sum = carried[2];
  Value firstKey = b.mulI(number, b.index(turnKeys));
  Value at = b.addI(key, firstKey), left = b.subI(keys, firstKey);
  Value wide =
      b.addI(b.mulI(at, arg("kv_stride")), b.mulI(head, b.addI(own, arg("E"))));
  Value part = loadTile("kv", wide, left, own, turnKeys, values);
  Value shared = loadTile("shared", b.mulI(at, arg("shared_stride")), left,
                          arg("R"), turnKeys, rest);
  Value value =
      loadTile("kv", b.addI(wide, own), left, arg("E"), turnKeys, values);
  Value score = b.dot(query, part, {}, false, true);
  score = b.dot(queryRest, shared, score, false, true);
  SmallVector<int64_t> shape = {rows, turnKeys};
  if (isMasked)
    score = b.select(maskOf(firstKey), score,
                     b.filled(shape, -std::numeric_limits<float>::infinity()));
  // A positive scale keeps the order of scores.
  constexpr double log2e = 1.4426950408889634;
  Value scale = b.mul(arg("scale"), log2e);
  Value next = arith::MaxNumFOp::create(
      b, top, b.mul(b.greatest(score, 1), b.splat(scale, {rows})));
  Value factor = b.exp2(b.sub(top, next));
  Value minusNext = arith::NegFOp::create(b, next);
  Value weight = b.exp2(
      b.fma(score, b.splat(scale, shape), b.rowFactor(minusNext, score)));
  total = b.fma(total, factor, b.sum(weight, 1));
  if (operand.isF32())
    value = b.toF32(value);
  sum = b.dot(b.round(weight, operand), value,
              b.mul(sum, b.rowFactor(factor, sum)));
  return {next, total, sum};
}

/// Rows without a key have no weight, and no sum that it could divide.
void PromptForm::store(ValueRange carried) {
  Value top = carried[0], total = carried[1], sum = carried[2];
  constexpr double least = 1e-30; // a row with a key has a total of 1 or more
  Value divisor = arith::MaxNumFOp::create(b, total, b.filled({rows}, least));
  Value inverse = arith::DivFOp::create(b, b.filled({rows}, 1), divisor);
  Value average = b.mul(sum, b.rowFactor(inverse, sum));
  Value logs = b.add(top, math::Log2Op::create(b, divisor));
  Value at = b.addI(b.mulI(row, arg("out_stride")), b.mulI(head, arg("E")));
  SmallVector<Value> valid = {count, arg("E")};
  tile::StoreOp::create(b, b.round(average, element), arg("out"), at,
                        arg("out_stride"), valid, kAccess, false);
  Value entry = b.addI(b.mulI(row, arg("H")), head);
  tile::StoreOp::create(b, average, arg("after"), b.mulI(entry, arg("E")),
                        b.mulI(arg("H"), arg("E")), valid, kAccess, false);
  tile::StoreOp::create(b, logs, arg("after_logs"), entry, arg("H"),
                        ValueRange{count}, 4, false);
}

/// Turns `first` .. `end`.
SmallVector<Value> PromptForm::goThrough(Value first, Value end,
                                         ValueRange carried, bool isMasked) {
  return b.carry(first, end, b.index(1), carried,
                 [&](Value number, ValueRange carried) {
                   return turn(number, carried, isMasked);
                 });
}

void PromptForm::build() {
  awaitOtherCalls();
  locate();
  Value at = b.addI(b.mulI(row, arg("q_stride")), b.mulI(head, arg("D")));
  query = loadTile("q", at, count, own, rows, values);
  queryRest = loadTile("q", b.addI(at, own), count, arg("R"), rows, rest);
  Value turns = b.ceilDiv(keys, turnKeys);
  Value first = b.index(0);
  SmallVector<Value> carried = carriedBefore();
  if (tile::multipliesByWarpgroups(schedule)) {
    // Of most turns every row sees all keys: no mask costs anything there.
    Value seen = b.minI(keys, b.addI(ahead, b.index(1)));
    Value whole = b.divI(b.maxI(first, seen), b.index(turnKeys));
    carried = goThrough(first, whole, carried, /*isMasked=*/false);
    first = whole;
  }
  store(goThrough(first, turns, carried, /*isMasked=*/true));
  func::ReturnOp::create(b);
}

LogicalResult buildPrompt(func::FuncOp source) {
  FailureOr<dplr::PromptAttentionOp> op =
      onlyOp<dplr::PromptAttentionOp>(source);
  if (failed(op))
    return failure();
  PromptForm(source, *op, scheduleOf(source)).build();
  return success();
}

} // namespace kdac
