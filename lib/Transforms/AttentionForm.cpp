// Kernels of form attention. The keys of a sequence are shared out between
// programs ("splits"), so that one long sequence fills a GPU. A program has
// some heads and a run of turns of as many keys each; its loop carries, for
// every head,
//
//   top    the largest score so far, in units of log2
//   total  the sum of exp2(score - top)
//   sum    the same times the values
//
// and leaves them in the workspace. The second kernel joins the splits of a
// head. How many there are depends on the sizes of a call, not on lengths,
// which only the device knows: a recorded call fits later ones.
#include "AttentionForm.h"
#include "KernelFunction.h"
#include "OnlyOp.h"
#include "kdac/Dialect/ElementType.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace kdac {

static constexpr int64_t kAccess =
    16; ///< bytes that rows begin at multiples of
/// Programs that a call should have: on GPUs one a multiprocessor.
static constexpr int64_t kHostPrograms = 8;
/// Columns of a joining program on a GPU. Splits whose sums are loaded
/// together.
static constexpr int64_t kJoinColumns = 128, kJoinTogether = 64, kJoinWarps = 8;
/// Splits of a head lie side by side, whole accesses of f32.
static constexpr int64_t kSplitLine = 4;
static constexpr int64_t kPageKeys = pageKeys; ///< a turn is part of a page

static Type elementOf(dplr::LatentAttentionOp op) {
  return cast<RankedTensorType>(op.getQuery().getType()).getElementType();
}

static Variant variantOf(dplr::LatentAttentionOp op) {
  Variant v;
  v.form = Form::Attention;
  v.dtype = floatDType(elementOf(op));
  return v;
}

static tile::ScheduleAttr scheduleOf(MLIRContext *context, const Target &target,
                                     StringRef form, int64_t chunk,
                                     int64_t vTile, int64_t warps,
                                     int64_t stages, Type operand) {
  return tile::ScheduleAttr::get(context, target.name, form, chunk, 1, vTile,
                                 warps, stages, operand, operand, "fused",
                                 /*refined=*/false);
}

namespace {

/// Keys of a turn, heads of a program, the warps that divide their scores,
/// turns whose keys are held at once.
struct Shares {
  int64_t keys, heads, warps, stages;

  /// Bytes of shared memory: rows of keys, which end 16 bytes later
  /// (tile-place); queries, unless they are gone by then to wait for tensor
  /// cores; weights; parts of sums.
  int64_t bytes(dplr::LatentAttentionOp op) const {
    int64_t size = tile::bytesOf(elementOf(op));
    int64_t row = op.getKeyWidth() * size + 2 * kAccess;
    int64_t queries = tile::multipliesByThreads(elementOf(op)) ? heads : 0;
    return (stages * keys + queries) * row + heads * (keys * size + kAccess) +
           heads * warps / (heads / 16) * 4;
  }
  /// Registers of each thread for sums, and for 16 queries of its warp.
  int64_t registers(dplr::LatentAttentionOp op) const {
    bool isHeld = !tile::multipliesByThreads(elementOf(op));
    return heads * op.getValueWidth() / (32 * warps) +
           (isHeld ? op.getKeyWidth() / 4 : 0);
  }
};

/// Leaves enough of 255 for scores and addresses.
constexpr int64_t kMostRegisters = 224;

} // namespace

/// What keeps most bytes in flight beside those that a turn works on, as far as
/// shared memory goes.
static std::optional<Shares> sharesOf(dplr::LatentAttentionOp op,
                                      const Target &target, int64_t chunk) {
  constexpr Shares gpu[] = {{64, 32, 8, 3}, {64, 32, 8, 2}, {64, 16, 8, 2},
                            {32, 16, 8, 2}, {16, 16, 8, 2}, {16, 16, 8, 1}};
  // A product's block on the host has eight rows.
  constexpr Shares host[] = {{64, 8, 1, 1}, {32, 8, 1, 1}, {16, 8, 1, 1}};
  bool isHost = target.kind == TargetKind::Host;
  for (const Shares &s : isHost ? ArrayRef(host) : ArrayRef(gpu)) {
    bool fits = isHost || (s.bytes(op) <= target.sharedBytesPerBlock &&
                           s.registers(op) <= kMostRegisters);
    if (fits && (chunk == 0 || s.keys == chunk))
      return s;
  }
  return std::nullopt;
}

LogicalResult selectAttention(func::FuncOp function, const Target &target,
                              int64_t chunk) {
  FailureOr<dplr::LatentAttentionOp> match =
      onlyOp<dplr::LatentAttentionOp>(function);
  if (failed(match))
    return failure();
  dplr::LatentAttentionOp op = *match;
  std::optional<Shares> shares = sharesOf(op, target, chunk);
  if (!shares && chunk == 0)
    return op.emitOpError()
           << "has keys of " << op.getKeyWidth() << " elements of "
           << elementOf(op) << ", more than a block holds on " << target.name
           << "; use narrower ones, or the host";
  if (!shares)
    return op.emitOpError()
           << "has no turn of " << chunk << " keys on " << target.name
           << "; 16, 32 and 64 work where a block holds them";
  bool isHost = target.kind == TargetKind::Host;
  function->setAttr(tile::kScheduleAttr,
                    scheduleOf(op.getContext(), target, "attention",
                               shares->keys, shares->heads, shares->warps,
                               shares->stages,
                               isHost ? Type(Float32Type::get(op.getContext()))
                                      : elementOf(op)));
  return success();
}

namespace {

/// One of the two kernels.
class AttentionForm : public KernelFunction {
public:
  AttentionForm(func::FuncOp source, dplr::LatentAttentionOp op,
                tile::ScheduleAttr schedule, tile::ScheduleAttr keys,
                const Twine &suffix)
      : KernelFunction(source, suffix, variantOf(op), schedule),
        target(*findTarget(schedule.getTarget())), heads(keys.getVTile()),
        turnKeys(keys.getChunk()), values(op.getValueWidth()),
        rest(op.getKeyWidth() - op.getValueWidth()), element(elementOf(op)) {
    countSplits();
  }
  void buildSplit();
  void buildJoin();

private:
  void countSplits();
  void shareKeys(Value sequence);
  Value loadRows(Value ref, Value base, Value valid, int64_t rows,
                 bool isValue);
  std::pair<Value, Value> pageOf(Value turn);
  SmallVector<Value> turn(Value number, ValueRange carried);
  void storePartial(ValueRange carried);
  Value loadSplits(Value at, Value first, int64_t count, Value some,
                   float otherwise);
  Value isNonNegative(Value number) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number,
                                 b.index(0));
  }
  /// The first element of sequence `n`, split `s`, head `h` of the sums.
  Value sumAt(Value n, Value s, Value h);
  /// The same of the largest scores and the totals, whose splits are
  /// neighbours.
  Value topAt(Value n, Value h);
  Value totalAt(Value n, Value h);

  const Target &target;
  int64_t heads;        ///< of a program that goes through keys
  int64_t turnKeys;     ///< of one turn of its loop, a part of a page
  int64_t values, rest; ///< widths of tiles: of a value, of what else a row has
  Type element;
  int64_t programs;       ///< that a call should have
  Value groups, splits;   ///< of a sequence
  Value pitch;            ///< entries of a head's scores and totals
  Value memory;           ///< the workspace as f32
  Value slot, keys;       ///< of the sequence
  Value turnsEach, turns; ///< of a split, of the sequence
  // Of a program that goes through keys:
  Value sequence, split, firstHead, headCount;
  Value end, last; ///< behind its last key, its last turn
  Value query, queryRest;
};

} // namespace

/// As many splits of every sequence as fill the machine, on the device and in
/// the launch's size expressions alike. The workspace must not depend on the
/// GPU in use: what counts is the target's usual one.
void AttentionForm::countSplits() {
  programs =
      target.kind == TargetKind::Host ? kHostPrograms : target.multiprocessors;
  auto text = [](int64_t x) { return std::to_string(x); };
  // There is no division but ceildiv: floor(a / b) is ceil((a + 1 - b) / b).
  std::string shares = "shares = max(1, N * ceildiv(H, " + text(heads) + "))";
  std::string each = "splits = max(1, ceildiv(minus(" + text(programs + 1) +
                     ", shares), shares))";
  function->setAttr("kdac.sizes", b.getStrArrayAttr({shares, each}));
  function->setAttr("kdac.workspace",
                    b.getStringAttr("N * H * (splits * " + text(values) +
                                    " + ceildiv(splits, " + text(kSplitLine) +
                                    ") * " + text(2 * kSplitLine) + ") * 4"));
  groups = b.ceilDiv(arg("H"), heads);
  splits =
      b.maxI(b.index(1), b.divI(b.index(programs), b.mulI(arg("N"), groups)));
  pitch = b.mulI(b.ceilDiv(splits, kSplitLine), b.index(kSplitLine));
  memory = tile::ViewOp::create(
      b, tile::RefType::get(b.getContext(), b.getF32Type()), arg("workspace"),
      0, Value());
}

Value AttentionForm::sumAt(Value n, Value s, Value h) {
  Value row = b.addI(b.mulI(b.addI(b.mulI(n, splits), s), arg("H")), h);
  return b.mulI(row, b.index(values));
}

Value AttentionForm::topAt(Value n, Value h) {
  Value sums = sumAt(arg("N"), b.index(0), b.index(0));
  return b.addI(sums, b.mulI(b.addI(b.mulI(n, arg("H")), h), pitch));
}

Value AttentionForm::totalAt(Value n, Value h) {
  Value tops = b.mulI(b.mulI(arg("N"), arg("H")), pitch);
  return b.addI(topAt(n, h), tops);
}

/// The keys of a sequence, and how many turns each of its splits has: all but
/// the last in use as many, those behind it none.
void AttentionForm::shareKeys(Value n) {
  Value zero = b.index(0), one = b.index(1);
  slot = b.loadIndex(arg("slots"), n, n);
  Value isSlot = b.both(b.isLess(slot, arg("S")), isNonNegative(slot));
  keys = b.loadIndex(arg("lengths"), n, zero);
  Value room = b.mulI(arg("table_pitch"), b.index(kPageKeys));
  keys = b.select(isSlot, b.maxI(zero, b.minI(keys, room)), zero);
  slot = b.select(isSlot, slot, zero);
  turns = b.ceilDiv(keys, turnKeys);
  turnsEach = b.maxI(one, b.divI(b.addI(turns, b.subI(splits, one)), splits));
}

/// The values of rows, or what they have besides: [rows, values] or [rows,
/// rest] from `base` on.
Value AttentionForm::loadRows(Value ref, Value base, Value valid, int64_t rows,
                              bool isValue) {
  Value width = isValue ? arg("R") : b.subI(arg("D"), arg("R"));
  if (!isValue)
    base = b.addI(base, arg("R"));
  return tile::LoadOp::create(
      b, b.tileType({rows, isValue ? values : rest}, element), ref, base,
      arg("D"), ValueRange{valid, width}, kAccess, false);
}

/// Where the rows of a turn begin, and how many of them exist: none behind the
/// program's last key, none on a page that the pool has not.
std::pair<Value, Value> AttentionForm::pageOf(Value number) {
  Value zero = b.index(0), none = b.index(-1);
  Value position = b.mulI(number, b.index(turnKeys));
  // Copies run ahead of the program's turns, and of no turn at all.
  Value known = b.mulI(b.maxI(zero, b.minI(number, b.subI(last, b.index(1)))),
                       b.index(turnKeys));
  Value entry = b.addI(b.mulI(slot, arg("table_pitch")),
                       b.divI(known, b.index(kPageKeys)));
  Value table = b.guarded(arg("table"), b.isLess(zero, keys));
  Value page = b.loadIndex(table, entry, none);
  Value isPage = b.both(b.isLess(page, arg("P")), isNonNegative(page));
  Value row = b.addI(b.mulI(page, b.index(kPageKeys)),
                     b.remI(known, b.index(kPageKeys)));
  Value rows = b.subI(end, position);
  return {b.select(isPage, b.mulI(row, arg("D")), zero),
          b.select(isPage, rows, zero)};
}

/// Scores of a turn's keys, then what they add.
SmallVector<Value> AttentionForm::turn(Value number, ValueRange carried) {
  Value top = carried[0], total = carried[1], sum = carried[2];
  auto [at, rows] = pageOf(number);
  Value latents = loadRows(arg("pages"), at, rows, turnKeys, true);
  Value others = loadRows(arg("pages"), at, rows, turnKeys, false);
  Value score = b.dot(query, latents, {}, false, true);
  score = b.dot(queryRest, others, score, false, true);
  SmallVector<int64_t> shape = {heads, turnKeys};
  constexpr double log2e = 1.4426950408889634;
  score = b.mul(score, b.splat(b.mul(arg("scale"), log2e), shape));
  Value numbers =
      tile::IotaOp::create(b, b.tileType(shape, b.getIndexType()), 1);
  Value exists = b.isLess(numbers, b.splat(rows, shape));
  score = b.select(exists, score,
                   b.filled(shape, -std::numeric_limits<float>::infinity()));
  Value next = arith::MaxNumFOp::create(b, top, b.greatest(score, 1));
  Value factor = b.exp2(b.sub(top, next));
  Value weight = b.exp2(b.sub(score, b.rowFactor(next, score)));
  total = b.fma(total, factor, b.sum(weight, 1));
  sum = b.dot(b.round(weight, element), latents,
              b.mul(sum, b.rowFactor(factor, sum)));
  return {next, total, sum};
}

/// A split without keys leaves nothing: nobody reads it.
void AttentionForm::storePartial(ValueRange carried) {
  Value count = b.select(b.isLess(b.index(0), end), headCount, b.index(0));
  auto storeHeads = [&](Value x, Value base) {
    tile::StoreOp::create(b, x, memory, b.addI(base, split), pitch,
                          ValueRange{count}, 4, false);
  };
  storeHeads(carried[0], topAt(sequence, firstHead));
  storeHeads(carried[1], totalAt(sequence, firstHead));
  tile::StoreOp::create(b, carried[2], memory,
                        sumAt(sequence, split, firstHead), b.index(values),
                        ValueRange{count, arg("R")}, kAccess, false);
}

void AttentionForm::buildSplit() {
  setGrid("N * ceildiv(H, " + std::to_string(heads) + ") * splits");
  awaitOtherCalls();
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  split = b.remI(id, splits);
  Value share = b.divI(id, splits);
  sequence = b.divI(share, groups);
  firstHead = b.mulI(b.remI(share, groups), b.index(heads));
  headCount = b.minI(b.index(heads), b.subI(arg("H"), firstHead));
  shareKeys(sequence);
  Value first = b.minI(b.mulI(split, turnsEach), turns);
  last = b.minI(b.addI(first, turnsEach), turns);
  Value some = b.isLess(first, last);
  end =
      b.select(some, b.minI(keys, b.mulI(last, b.index(turnKeys))), b.index(0));
  Value at = b.mulI(b.addI(b.mulI(sequence, arg("H")), firstHead), arg("D"));
  query = loadRows(arg("q"), at, headCount, heads, true);
  queryRest = loadRows(arg("q"), at, headCount, heads, false);
  SmallVector<Value> nothing = {
      b.filled({heads}, std::numeric_limits<float>::lowest()),
      b.filled({heads}, 0), b.filled({heads, values}, 0)};
  storePartial(b.carry(
      first, last, b.index(1), nothing,
      [&](Value number, ValueRange carried) { return turn(number, carried); }));
  func::ReturnOp::create(b);
}

/// `some` entries of a head, one a split, from `first` on; behind the last one
/// `otherwise`. Whole accesses read what lies behind, too.
Value AttentionForm::loadSplits(Value at, Value first, int64_t count,
                                Value some, float otherwise) {
  Value x = tile::LoadOp::create(
      b, b.tileType({count}), memory, b.addI(at, first), b.index(1),
      ValueRange{b.subI(pitch, first)}, kAccess, false);
  Value numbers =
      tile::IotaOp::create(b, b.tileType({count}, b.getIndexType()), 0);
  Value exists = b.isLess(numbers, b.splat(some, {count}));
  return b.select(exists, x, b.filled({count}, otherwise));
}

/// The splits of a head, each times 2^(its largest score - the largest of all):
/// first that of the totals, then the sums, many at a time.
void AttentionForm::buildJoin() {
  constexpr float lowest = std::numeric_limits<float>::lowest();
  int64_t width = schedule.getVTile(), together = schedule.getChunk();
  int64_t blocks = llvm::divideCeil(values, width);
  setGrid("N * H * " + std::to_string(blocks));
  if (target.hasDependentLaunch) {
    tile::AwaitLaunchOp::create(b);
    tile::StartNextOp::create(b);
    function->setAttr("kdac.overlaps", b.getUnitAttr());
  }
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  Value firstColumn = b.mulI(b.remI(id, b.index(blocks)), b.index(width));
  Value row = b.divI(id, b.index(blocks));
  Value n = b.divI(row, arg("H")), h = b.remI(row, arg("H"));
  Value columns = b.subI(arg("R"), firstColumn);
  shareKeys(n);
  Value live = b.divI(b.addI(turns, b.subI(turnsEach, b.index(1))), turnsEach);
  int64_t most = llvm::PowerOf2Ceil(programs);
  Value tops = loadSplits(topAt(n, h), b.index(0), most, live, lowest);
  Value totals = loadSplits(totalAt(n, h), b.index(0), most, live, 0);
  Value top = b.greatest(tops, 0);
  Value total =
      b.sum(b.mul(b.exp2(b.sub(tops, b.splat(top, {most}))), totals), 0);
  Value rounds = b.ceilDiv(live, together);
  auto addSome = [&](Value number, ValueRange sum) -> SmallVector<Value> {
    Value first = b.mulI(number, b.index(together));
    Value rest = b.subI(live, first);
    Value sums =
        tile::LoadOp::create(b, b.tileType({together, width}), memory,
                             b.addI(sumAt(n, first, h), firstColumn),
                             b.mulI(arg("H"), b.index(values)),
                             ValueRange{rest, columns}, kAccess, false);
    Value factors =
        b.exp2(b.sub(loadSplits(topAt(n, h), first, together, rest, lowest),
                     b.splat(top, {together})));
    Value some = b.sum(b.mul(sums, b.rowFactor(factors, sums)), 0);
    return {b.add(sum[0], some)};
  };
  Value sum = b.carry(rounds, b.filled({width}, 0), addSome)[0];
  // Without a key that exists there is nothing to divide by.
  Value isSome =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, total, b.f32(0));
  Value inverse =
      b.select(isSome, arith::DivFOp::create(b, b.f32(1), total), b.f32(0));
  Value out = b.mul(sum, b.splat(inverse, {width}));
  Value at = b.addI(b.mulI(row, arg("R")), firstColumn);
  tile::StoreOp::create(b, b.round(out, element), arg("out"), at, b.index(1),
                        ValueRange{columns}, kAccess, false);
  func::ReturnOp::create(b);
}

LogicalResult buildAttention(func::FuncOp source) {
  FailureOr<dplr::LatentAttentionOp> match =
      onlyOp<dplr::LatentAttentionOp>(source);
  if (failed(match))
    return failure();
  dplr::LatentAttentionOp op = *match;
  tile::ScheduleAttr schedule = scheduleOf(source);
  const Target &target = *findTarget(schedule.getTarget());
  AttentionForm(source, op, schedule, schedule, "").buildSplit();
  bool isHost = target.kind == TargetKind::Host;
  int64_t columns = op.getValueWidth();
  tile::ScheduleAttr join =
      isHost ? scheduleOf(op.getContext(), target, "attention", kHostPrograms,
                          columns, 1, 1, Float32Type::get(op.getContext()))
             : scheduleOf(op.getContext(), target, "attention", kJoinTogether,
                          std::min(columns, kJoinColumns), kJoinWarps, 2,
                          Float32Type::get(op.getContext()));
  AttentionForm(source, op, join, schedule, "_join").buildJoin();
  return success();
}

} // namespace kdac
