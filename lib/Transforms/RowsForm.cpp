// Kernels of form rows: norms, products with a gate, sums and copies of rows of
// one width, rows behind a page table, averages by score. A program has one
// row, or a stretch of one, as a vector.
#include "RowsForm.h"
#include "GatedProduct.h"
#include "KernelFunction.h"
#include "OnlyOp.h"
#include "kdac/Dialect/ElementType.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// Bytes that rows begin at multiples of; one access of a thread.
static constexpr int64_t kAccess = 16;

static Type elementOf(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getElementType();
}

static FailureOr<Operation *> matchRows(func::FuncOp function) {
  SmallVector<Operation *> found;
  for (Operation &op : function.getBody().front().without_terminator())
    found.push_back(&op);
  bool isOne =
      found.size() == 1 &&
      isa<dplr::RmsNormOp, dplr::GatedProductOp, dplr::AddOp, dplr::GatherOp,
          dplr::CombineOp, dplr::LatentOp, dplr::MixOp>(found.front());
  if (!isOne)
    return function.emitOpError()
           << "expected one op on rows with form rows, but got " << found.size()
           << " ops";
  return found.front();
}

static Variant variantOf(Operation *op) {
  Variant v;
  v.form = Form::Rows;
  v.dtype = floatDType(elementOf(op->getOperand(0)));
  v.rows = llvm::TypeSwitch<Operation *, RowOp>(op)
               .Case([](dplr::RmsNormOp) { return RowOp::Norm; })
               .Case([](dplr::AddOp) { return RowOp::Add; })
               .Case([](dplr::GatherOp) { return RowOp::Gather; })
               .Case([](dplr::CombineOp) { return RowOp::Combine; })
               .Case([](dplr::LatentOp) { return RowOp::Latent; })
               .Case([](dplr::MixOp) { return RowOp::Mix; })
               .Case([](dplr::GatedProductOp product) {
                 return *parseRowOp(dplr::stringifyProduct(product.getKind()));
               });
  return v;
}

/// The longest row of an op that holds one at once; nothing of others.
static std::optional<int64_t> heldWidth(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case<dplr::RmsNormOp, dplr::LatentOp, dplr::MixOp>(
          [](auto held) { return held.getWidth(); })
      .Default([](Operation *) { return std::nullopt; });
}

/// On a GPU a row that is held at once is held by as few threads as can, 16
/// bytes each and more where a block would be too large; the kernel waits for
/// its loads, not for bandwidth. Others take stretches that fill a GPU from a
/// few rows on.
static tile::ScheduleAttr chooseRows(Operation *op, const Target &target) {
  constexpr int64_t mostThreads = 512, usualWarps = 4, hostColumns = 4096;
  std::optional<int64_t> held = heldWidth(op);
  bool isHost = target.kind == TargetKind::Host;
  int64_t each = kAccess / tile::bytesOf(elementOf(op->getOperand(0)));
  int64_t warps = isHost ? 1 : usualWarps;
  int64_t columns = isHost ? hostColumns : usualWarps * 32 * each;
  if (held && isHost) {
    columns = llvm::alignTo(*held, kAccess);
  } else if (held) {
    int64_t vectors = llvm::divideCeil(*held, each);
    int64_t turns = llvm::divideCeil(vectors, mostThreads);
    warps = llvm::divideCeil(llvm::divideCeil(vectors, turns), 32);
    columns = warps * 32 * turns * each;
  }
  Type f32 = Float32Type::get(op->getContext());
  return tile::ScheduleAttr::get(op->getContext(), target.name, "rows", 1, 1,
                                 columns, warps, 1, f32, f32, "fused",
                                 /*refined=*/false);
}

namespace {

class RowsForm : public KernelFunction {
public:
  RowsForm(func::FuncOp source, Operation *op, tile::ScheduleAttr schedule)
      : KernelFunction(source, "", variantOf(op), schedule), op(op),
        width(schedule.getVTile()), element(elementOf(op->getOperand(0))) {}
  void build();

private:
  void locate(bool isWholeRow);
  Value at(StringRef name, Value number);
  Value load(StringRef name);
  Value loadAt(StringRef name, Value offset, Value columns);
  Value loadParameter(StringRef name, Value columns);
  void store(Value x, StringRef name);
  void storeAt(Value x, Value ref, Value offset, Value columns);
  Value inverseRoot(Value squares, Value columns);
  void buildNorm();
  void buildAdd();
  void buildProduct(dplr::GatedProductOp product);
  Value loadPicked(Value entry);
  void buildGather();
  void buildCombine();
  Value place(Value &isPlaced);
  void buildLatent();
  void buildMix();

  Operation *op;
  int64_t width; ///< of the program's vector
  Type element;
  Value row;          ///< of this program
  Value first, count; ///< columns of it
};

} // namespace

/// A program has a row, or `width` columns of one: neighbours have neighbouring
/// columns.
void RowsForm::locate(bool isWholeRow) {
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  row = id;
  first = b.index(0);
  count = arg("D");
  std::string grid = "T";
  if (!isWholeRow) {
    Value blocks = b.ceilDiv(arg("D"), width);
    row = b.divI(id, blocks);
    first = b.mulI(b.remI(id, blocks), b.index(width));
    count = b.minI(b.index(width), b.subI(arg("D"), first));
    grid += " * ceildiv(D, " + std::to_string(width) + ")";
  }
  setGrid(grid);
}

/// Where the program's columns of row `number` begin.
Value RowsForm::at(StringRef name, Value number) {
  return b.addI(b.mulI(number, arg((name + "_stride").str())), first);
}

Value RowsForm::load(StringRef name) {
  return b.toF32(loadAt(name, at(name, row), count));
}

/// `columns` of them from `offset` on, as they are stored.
Value RowsForm::loadAt(StringRef name, Value offset, Value columns) {
  return tile::LoadOp::create(b, b.tileType({width}, element), arg(name),
                              offset, b.index(1), ValueRange{columns}, kAccess,
                              false);
}

/// A parameter in f32, with a column for each of the row's.
Value RowsForm::loadParameter(StringRef name, Value columns) {
  return b.once(tile::LoadOp::create(b, b.tileType({width}), arg(name),
                                     b.index(0), b.index(1),
                                     ValueRange{columns}, kAccess, false));
}

void RowsForm::store(Value x, StringRef name) {
  storeAt(b.round(x, element), arg(name), at(name, row), count);
}

void RowsForm::storeAt(Value x, Value ref, Value offset, Value columns) {
  tile::StoreOp::create(b, x, ref, offset, b.index(1), ValueRange{columns},
                        kAccess, false);
}

/// 1 / sqrt(mean + eps) of a vector whose `columns` squares are given.
Value RowsForm::inverseRoot(Value squares, Value columns) {
  Value integer = arith::IndexCastOp::create(b, b.getI64Type(), columns);
  Value elements = arith::SIToFPOp::create(b, b.getF32Type(), integer);
  Value mean = arith::DivFOp::create(b, b.sum(squares, 0), elements);
  return b.rsqrt(b.add(mean, arg("eps")));
}

/// The row stays where it was loaded to, and so do the weights, which no kernel
/// ahead writes: they are on their way while it still runs.
void RowsForm::buildNorm() {
  Value weight = loadParameter("weight", count);
  awaitOtherCalls();
  Value x = b.once(b.toF32(b.round(b.add(load("x"), load("branch")), element)));
  store(x, "sum");
  Value inverse = inverseRoot(b.mul(x, x), count);
  store(b.mul(b.mul(x, b.splat(inverse, {width})), weight), "out");
}

void RowsForm::buildAdd() {
  awaitOtherCalls();
  store(b.add(load("x"), load("branch")), "out");
}

void RowsForm::buildProduct(dplr::GatedProductOp product) {
  awaitOtherCalls();
  Value gate = load("gate"), up = load("up");
  store(
      gatedProduct(b, product.getKind(), gate, up, arg("beta"), arg("linear")),
      "out");
}

/// The row of x that entry `entry` of the indices names. They live in device
/// memory, where the host cannot check them.
Value RowsForm::loadPicked(Value entry) {
  Value number = b.loadIndex(arg("index"), entry, entry);
  Value last = b.subI(arg("R"), b.index(1));
  number = b.maxI(b.index(0), b.minI(number, last));
  Value some = b.minI(count, b.mulI(arg("R"), b.index(width)));
  return loadAt("x", at("x", number), some);
}

void RowsForm::buildGather() {
  awaitOtherCalls();
  storeAt(loadPicked(row), arg("out"), at("out", row), count);
}

void RowsForm::buildCombine() {
  awaitOtherCalls();
  Value none = b.filled({width}, 0);
  auto addEntry = [&](Value number, ValueRange sum) -> SmallVector<Value> {
    Value entry = b.addI(b.mulI(row, arg("E")), number);
    Value scale = b.loadF32(arg("scales"), entry);
    Value x = b.toF32(loadPicked(entry));
    return {b.fma(x, b.splat(scale, {width}), sum[0])};
  };
  store(b.carry(arg("E"), none, addEntry)[0], "out");
}

/// The row that the page table has for this one. Indices live in device memory:
/// `isPlaced` is false where one of them is outside of what there is. Without a
/// page -1 is one, and the place is negative.
Value RowsForm::place(Value &isPlaced) {
  Value slot = b.loadIndex(arg("slots"), row, b.index(-1));
  Value position = b.loadIndex(arg("positions"), row, b.index(-1));
  Value size = arg("page");
  Value page = b.divI(position, size), entry = b.mulI(slot, arg("P"));
  isPlaced = b.both(b.isWithin(slot, arg("S")),
                    b.isWithin(position, b.mulI(arg("P"), size)));
  Value table = b.guarded(arg("table"), isPlaced);
  Value number = b.loadIndex(table, b.addI(entry, page), b.index(-1));
  Value place = b.addI(b.mulI(number, size), b.remI(position, size));
  isPlaced = b.isWithin(place, arg("R"));
  return place;
}

/// The front is normalised, what is behind it is copied. Both are on their way
/// while their place is looked up.
void RowsForm::buildLatent() {
  Value rank = arg("rank");
  Value weight = loadParameter("weight", rank);
  awaitOtherCalls();
  Value from = at("x", row), behind = b.subI(arg("D"), rank);
  Value x = b.once(b.toF32(loadAt("x", from, rank)));
  Value rest = b.once(b.toF32(loadAt("x", b.addI(from, rank), behind)));
  Value isPlaced, to = at("out", place(isPlaced));
  Value out = b.guarded(arg("out"), isPlaced);
  storeAt(b.round(rest, element), out, b.addI(to, rank), behind);
  Value factor = b.splat(inverseRoot(b.mul(x, x), rank), {width});
  storeAt(b.round(b.mul(b.mul(x, factor), weight), element), out, to, rank);
}

/// One row after the other, each read once and while the one before is summed
/// up: the sum and the total so far are relative to the largest score so far,
/// as attention has them.
void RowsForm::buildMix() {
  constexpr double log2e = 1.44269504088896340736, lowest = -1e30;
  Value query = loadParameter("query", count);
  awaitOtherCalls();
  Value zeros = b.filled({width}, 0);
  auto rowOf = [&](Value tensor) { // none of a tensor behind the last one
    Value left = b.minI(b.index(1), b.subI(arg("E"), tensor));
    Value from = b.addI(b.mulI(tensor, arg("x_pitch")), at("x", row));
    return b.once(b.toF32(loadAt("x", from, b.mulI(count, left))));
  };
  auto addRow = [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value largest = carried[0], total = carried[1];
    Value x = carried[3];
    Value ahead = rowOf(b.addI(number, b.index(1)));
    Value dot = b.sum(b.mul(x, query), 0);
    Value score = b.mul(b.mul(dot, inverseRoot(b.mul(x, x), count)), log2e);
    Value next = arith::MaximumFOp::create(b, largest, score);
    Value kept = b.exp2(b.sub(largest, next));
    Value share = b.exp2(b.sub(score, next));
    Value before = b.mul(carried[2], b.splat(kept, {width}));
    Value sum = b.fma(x, b.splat(share, {width}), before);
    return {next, b.fma(total, kept, share), sum, ahead};
  };
  ValueRange sums = b.carry(
      arg("E"), ValueRange{b.f32(lowest), b.f32(0), zeros, rowOf(b.index(0))},
      addRow);
  Value inverse = arith::DivFOp::create(b, b.f32(1), sums[1]);
  store(b.mul(sums[2], b.splat(inverse, {width})), "out");
}

void RowsForm::build() {
  locate(heldWidth(op).has_value());
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](dplr::RmsNormOp) { buildNorm(); })
      .Case([&](dplr::AddOp) { buildAdd(); })
      .Case([&](dplr::GatedProductOp product) { buildProduct(product); })
      .Case([&](dplr::GatherOp) { buildGather(); })
      .Case([&](dplr::CombineOp) { buildCombine(); })
      .Case([&](dplr::LatentOp) { buildLatent(); })
      .Case([&](dplr::MixOp) { buildMix(); });
  func::ReturnOp::create(b);
}

LogicalResult selectRows(func::FuncOp function, const Target &target) {
  FailureOr<Operation *> op = matchRows(function);
  if (failed(op))
    return failure();
  function->setAttr(tile::kScheduleAttr, chooseRows(*op, target));
  return success();
}

LogicalResult buildRows(func::FuncOp source) {
  FailureOr<Operation *> op = matchRows(source);
  if (failed(op))
    return failure();
  RowsForm(source, *op, scheduleOf(source)).build();
  return success();
}

} // namespace kdac
