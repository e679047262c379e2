// The kernel of form matmul. A part of the result has a tile of rows of one
// group, up to 128, and some columns; its loop goes through the columns that
// rows and weights have in common, a turn of some at a time, and carries the
// sums: of a gated product two tiles, which meet behind the loop. A program has
// one part, or where wgmma multiplies one after the other, so that what the
// next one needs is on its way while the present one is stored.
#include "MatmulForm.h"
#include "GatedProduct.h"
#include "KernelFunction.h"
#include "OnlyOp.h"
#include "kdac/Dialect/ElementType.h"

using namespace mlir;

namespace kdac {

/// Bytes that rows begin at multiples of; one access of a thread.
static constexpr int64_t kAccess = 16;
static constexpr int64_t kPair = 2;  ///< elements of a row of the result
static constexpr int64_t kBand = 16; ///< tiles that are made together

static Type elementOf(dplr::GroupedMatmulOp op) {
  return op.getInput().getType().getElementType();
}

static Variant variantOf(dplr::GroupedMatmulOp op) {
  Variant v;
  v.form = Form::Matmul;
  v.dtype = floatDType(elementOf(op));
  if (op.getKind())
    v.rows = *parseRowOp(dplr::stringifyProduct(*op.getKind()));
  return v;
}

namespace {

/// Columns of the result that a program has, of each of two products in a gated
/// one; columns of a turn, warps, buffers of a turn's tiles.
struct Shares {
  int64_t columns, depth, warps, stages;
};

} // namespace

/// By wgmma a block is alone on its multiprocessor, with 128 sums a thread:
/// twice as wide tiles read three quarters as much of the L2.
LogicalResult selectMatmul(func::FuncOp function, const Target &target,
                           int64_t columns) {
  FailureOr<dplr::GroupedMatmulOp> match =
      onlyOp<dplr::GroupedMatmulOp>(function);
  if (failed(match))
    return failure();
  dplr::GroupedMatmulOp op = *match;
  bool isGated = op.getUp() != nullptr;
  int64_t products = isGated ? 2 : 1;
  Type element = elementOf(op);
  SmallVector<Shares> all = {{128 / products, 64, 8, 2},
                             {64 / products, 64, 8, 2}};
  bool byWarpgroups = target.hasWarpgroupProducts && element.isBF16();
  bool isHost = target.kind == TargetKind::Host;
  if (isHost)
    all = {{64, 64, 1, 1}, {32, 64, 1, 1}};
  else if (byWarpgroups)
    all = {{256 / products, 64, 8, 4}, {64, 64, 8, 4}};
  Type operand = isHost ? Type(Float32Type::get(op.getContext())) : element;
  auto add = [&](StringRef attribute, const Shares &s) {
    function->setAttr(
        attribute,
        tile::ScheduleAttr::get(op.getContext(), target.name, "matmul", s.depth,
                                1, s.columns, s.warps, s.stages, operand,
                                operand, byWarpgroups ? "warpgroups" : "fused",
                                /*refined=*/false));
    return success();
  };
  for (const Shares &s : all)
    if (s.columns == columns)
      return add(tile::kScheduleAttr, s);
  if (columns != 0)
    return op.emitOpError()
           << "has no program of " << columns << " columns on " << target.name
           << "; " << all[1].columns << " and " << all[0].columns << " work";
  if (byWarpgroups)
    (void)add(tile::kFewProgramsAttr, all[1]);
  return add(tile::kScheduleAttr, all[0]);
}

namespace {

class MatmulForm : public KernelFunction {
public:
  MatmulForm(func::FuncOp source, dplr::GroupedMatmulOp op,
             tile::ScheduleAttr schedule, StringRef suffix, bool isPersistent)
      : KernelFunction(source, suffix, variantOf(op), schedule),
        kind(op.getKind()), isPersistent(isPersistent),
        columns(schedule.getVTile()), depth(schedule.getChunk()),
        element(elementOf(op)) {
    setGrid(isPersistent ? "min(sms, " + parts() + ")" : parts());
  }
  void build();
  /// Parts of a call's result, as a size expression.
  std::string parts() const;
  void runWhen(const std::string &condition) {
    function->setAttr("kdac.when", b.getStringAttr(condition));
  }

private:
  void locate(Value id);
  void buildPart(Value id);
  SmallVector<Value> turn(Value number, ValueRange sums);
  Value loadWeights(StringRef name, Value first, Value left);
  void store(ValueRange sums);
  Value guarded(StringRef name, Value condition) {
    return b.guarded(arg(name), condition);
  }

  std::optional<dplr::Product> kind; ///< of a gated product
  bool isPersistent; ///< a program for each multiprocessor has part after part
  int64_t columns;   ///< of the result and of a part
  int64_t depth;     ///< columns of a turn
  Type element;
  Value blocks;     ///< parts that a tile has
  Value row, count; ///< of the part: its first one, and how many
  Value picked;     ///< of these, all unless x has none
  Value column;     ///< its first one
  Value outputs;    ///< columns from there on, none without rows
  Value group;
};

} // namespace

std::string MatmulForm::parts() const {
  return "tile_count * ceildiv(E, " + std::to_string(columns) + ")";
}

/// Parts that are made together are a square of the result, a band of tiles
/// times as many columns as fit, so that they share inputs. The numbers of a
/// tile are in device memory: one that does not exist has no rows.
void MatmulForm::locate(Value id) {
  Value zero = b.index(0), one = b.index(1), rows = b.index(matmulRows);
  Value band = b.divI(id, b.mulI(b.index(kBand), blocks));
  Value first = b.mulI(band, b.index(kBand));
  Value inBand = b.subI(id, b.mulI(first, blocks));
  Value tiles = b.minI(b.index(kBand), b.subI(arg("tile_count"), first));
  tiles = b.maxI(one, tiles); // behind the last part
  Value tile = b.addI(first, b.remI(inBand, tiles));
  column = b.mulI(b.divI(inBand, tiles), b.index(columns));
  Value isTile = b.isWithin(tile, arg("tile_count"));
  Value list = guarded("tiles", isTile), entry = b.mulI(tile, b.index(2));
  group = b.loadIndex(list, entry, zero);
  row = b.loadIndex(list, b.addI(entry, one), b.mulI(tile, rows));
  Value isGroup = b.isWithin(group, arg("G"));
  Value end = b.loadIndex(guarded("starts", isGroup), b.addI(group, b.index(1)),
                          arg("T"));
  Value isSome = b.both(b.both(isTile, isGroup), b.isWithin(row, arg("T")));
  count = b.subI(b.minI(end, arg("T")), row);
  count = b.maxI(zero, b.minI(rows, count));
  count = b.select(isSome, count, zero);
  picked = b.minI(count, b.mulI(arg("R"), rows));
  group = b.select(isSome, group, zero);
  outputs = b.select(isSome, b.subI(arg("E"), column), zero);
}

/// A turn's columns of the program's rows of weights.
Value MatmulForm::loadWeights(StringRef name, Value first, Value left) {
  Value line = b.addI(b.mulI(group, arg("E")), column);
  Value at = b.addI(b.mulI(line, arg("D")), first);
  return tile::LoadOp::create(b, b.tileType({columns, depth}, element),
                              arg(name), at, arg("D"),
                              ValueRange{outputs, left}, kAccess, false);
}

SmallVector<Value> MatmulForm::turn(Value number, ValueRange sums) {
  Value first = b.mulI(number, b.index(depth));
  Value left = b.subI(arg("D"), first);
  Value x = tile::LoadOp::create(
      b, b.tileType({matmulRows, depth}, element), arg("x"), first,
      arg("x_stride"), /*entry=*/Value(), ValueRange{picked, left},
      arg("order"), row, arg("each"), arg("R"), kAccess, /*transposed=*/false);
  SmallVector<Value> next = {
      b.dot(x, loadWeights("weights", first, left), sums[0], false, true)};
  if (kind)
    next.push_back(
        b.dot(x, loadWeights("up", first, left), sums[1], false, true));
  return next;
}

void MatmulForm::store(ValueRange sums) {
  Value sum = sums[0];
  if (kind)
    sum = gatedProduct(b, *kind, sum, sums[1], arg("beta"), arg("linear"));
  SmallVector<Value> valid = {count, outputs};
  auto storeTo = [&](StringRef name, Value tile) {
    Value stride = arg((name + "_stride").str());
    Value at = b.addI(b.mulI(row, stride), column);
    Type stored = cast<RankedTensorType>(tile.getType()).getElementType();
    tile::StoreOp::create(b, tile, arg(name), at, stride, valid,
                          kPair * tile::bytesOf(stored), false);
  };
  storeTo("out", b.round(sum, element));
  storeTo("sums", sum);
}

/// Part `id` of the result.
void MatmulForm::buildPart(Value id) {
  locate(id);
  SmallVector<Value> none(kind ? 2 : 1, b.filled({matmulRows, columns}, 0));
  // Programs without rows have no turn.
  Value turns = b.ceilDiv(arg("D"), depth);
  turns = b.minI(turns, b.mulI(count, turns));
  store(b.carry(turns, none, [&](Value number, ValueRange sums) {
    return turn(number, sums);
  }));
}

void MatmulForm::build() {
  awaitOtherCalls();
  blocks = b.ceilDiv(arg("E"), columns);
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  if (isPersistent) {
    Value parts = b.mulI(arg("tile_count"), blocks);
    Value programs = tile::NumProgramsOp::create(b, b.getIndexType());
    b.forEach(id, parts, programs, [&](Value part) { buildPart(part); });
  } else {
    buildPart(id);
  }
  func::ReturnOp::create(b);
}

/// Where not every other multiprocessor has a part of the usual width, narrower
/// ones: they wait for weights that few programs cannot bring as fast.
LogicalResult buildMatmul(func::FuncOp source) {
  FailureOr<dplr::GroupedMatmulOp> op = onlyOp<dplr::GroupedMatmulOp>(source);
  if (failed(op))
    return failure();
  tile::ScheduleAttr usual = scheduleOf(source);
  MatmulForm form(source, *op, usual, "", tile::multipliesByWarpgroups(usual));
  form.build();
  auto narrow =
      source->getAttrOfType<tile::ScheduleAttr>(tile::kFewProgramsAttr);
  if (!narrow)
    return success();
  std::string some = "2 * " + form.parts();
  std::string isFew = "less(" + some + ", sms)";
  form.runWhen("less(" + isFew + ", 1)");
  MatmulForm few(source, *op, narrow, "_few", /*isPersistent=*/false);
  few.runWhen(isFew);
  few.build();
  return success();
}

} // namespace kdac
