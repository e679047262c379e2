// Kernels of form rows: norms, products with a gate, sums and copies of rows of
// one width. A program has one row, or a stretch of one, as a vector.
#include "RowsForm.h"
#include "TileBuilder.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// Bytes that rows begin at multiples of; one access of a thread.
static constexpr int64_t kAccess = 16;

static Type elementOf(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getElementType();
}

bool isRowsForm(func::FuncOp function) {
  auto form = function->getAttrOfType<dplr::FormAttr>("dplr.form");
  return form && form.getValue() == dplr::Form::Rows;
}

FailureOr<Operation *> matchRows(func::FuncOp function) {
  SmallVector<Operation *> found;
  for (Operation &op : function.getBody().front().without_terminator())
    found.push_back(&op);
  bool isOne = found.size() == 1 &&
               isa<dplr::RmsNormOp, dplr::GatedProductOp, dplr::AddOp,
                   dplr::GatherOp, dplr::CombineOp>(found.front());
  if (!isOne)
    return function.emitOpError()
           << "expected one op on rows with form rows, but got " << found.size()
           << " ops";
  return found.front();
}

/// On a GPU a row of a norm is held by as few threads as can, 16 bytes each and
/// more where a block would be too large; the kernel waits for its loads, not
/// for bandwidth. Others take stretches that fill a GPU from a few rows on.
tile::ScheduleAttr chooseRows(Operation *op, const Target &target) {
  constexpr int64_t mostThreads = 512, usualWarps = 4, hostColumns = 4096;
  auto norm = dyn_cast<dplr::RmsNormOp>(op);
  bool isHost = target.kind == TargetKind::Host;
  int64_t each = kAccess / tile::bytesOf(elementOf(op->getOperand(0)));
  int64_t warps = isHost ? 1 : usualWarps;
  int64_t columns = isHost ? hostColumns : usualWarps * 32 * each;
  if (norm && isHost) {
    columns = llvm::alignTo(norm.getWidth(), kAccess);
  } else if (norm) {
    int64_t vectors = llvm::divideCeil(norm.getWidth(), each);
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

/// One kernel function; its insertion point is inside the body.
class RowsForm {
public:
  RowsForm(func::FuncOp source, Operation *op, tile::ScheduleAttr schedule)
      : op(op), schedule(schedule), base(source), b(source.getLoc(), base),
        width(schedule.getVTile()) {
    createFunction(source);
  }
  void build();

private:
  void createFunction(func::FuncOp source);
  void locate(bool isWholeRow);
  void awaitOtherCalls();
  Value at(StringRef name, Value number);
  Value load(StringRef name);
  void store(Value x, StringRef name);
  void buildNorm();
  void buildAdd();
  void buildProduct(dplr::GatedProductOp product);
  Value loadPicked(Value entry);
  void buildGather();
  void buildCombine();
  Value arg(StringRef name) const { return args.lookup(name); }

  Operation *op;
  tile::ScheduleAttr schedule;
  OpBuilder base;
  TileBuilder b;
  int64_t width; ///< of the program's vector
  func::FuncOp function;
  Type element;
  llvm::StringMap<Value> args;
  Value row;          ///< of this program
  Value first, count; ///< columns of it
};

} // namespace

/// Canonical order: see kernelArgs in include/kdac/Variant/Variant.h.
void RowsForm::createFunction(func::FuncOp source) {
  element = elementOf(op->getOperand(0));
  SmallVector<StringRef> names, rows, sizes = {"T", "D"}, scales;
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](dplr::RmsNormOp) {
        names = {"x", "branch", "weight", "sum", "out"};
        rows = {"x", "branch", "sum", "out"};
        scales = {"eps"};
      })
      .Case([&](dplr::AddOp) { names = rows = {"x", "branch", "out"}; })
      .Case([&](dplr::GatedProductOp product) {
        names = rows = {"gate", "up", "out"};
        if (product.getKind() == dplr::Product::Situ)
          scales = {"beta", "linear"};
      })
      .Case([&](dplr::GatherOp) {
        names = {"x", "index", "out"};
        rows = {"x", "out"};
        sizes.push_back("R");
      })
      .Case([&](dplr::CombineOp) {
        names = {"x", "index", "scales", "out"};
        rows = {"x", "out"};
        sizes.append({"R", "E"});
      });
  SmallVector<std::string> all;
  SmallVector<Type> types;
  auto add = [&](const Twine &name, Type type) {
    all.push_back(name.str());
    types.push_back(type);
  };
  for (StringRef name : names) {
    bool isF32 = name == "weight" || name == "scales";
    add(name, tile::RefType::get(b.getContext(), isF32 ? Type(b.getF32Type())
                                                 : name == "index"
                                                     ? Type(b.getI32Type())
                                                     : element));
  }
  for (StringRef name : sizes)
    add(name, b.getIndexType());
  for (StringRef name : rows)
    add(name + "_stride", b.getIndexType());
  for (StringRef name : scales)
    add(name, b.getF32Type());
  function =
      func::FuncOp::create(b, source.getName(), b.getFunctionType(types, {}));
  function->setAttr(tile::kKernelAttr, b.getUnitAttr());
  function->setAttr(tile::kScheduleAttr, schedule);
  function->setAttr("kdac.v_tile", b.getI64IntegerAttr(width));
  b.setInsertionPointToStart(function.addEntryBlock());
  for (auto [i, name] : llvm::enumerate(all)) {
    args[name] = function.getArgument(i);
    function.setArgAttr(i, "kdac.name", b.getStringAttr(name));
  }
}

/// A program has a row, or `width` columns of one: neighbours have neighbouring
/// columns.
void RowsForm::locate(bool isWholeRow) {
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  row = id;
  first = b.index(0);
  count = arg("D");
  std::string grid = "T";
  if (!isWholeRow) {
    Value blocks = b.divI(b.addI(arg("D"), b.index(width - 1)), b.index(width));
    row = b.divI(id, blocks);
    first = b.mulI(b.remI(id, blocks), b.index(width));
    count = b.minI(b.index(width), b.subI(arg("D"), first));
    grid += " * ceildiv(D, " + std::to_string(width) + ")";
  }
  function->setAttr("kdac.grid", b.getStringAttr(grid));
}

/// What kernels of other calls wrote is needed from here on; only parameters
/// are read before (Kernel.h).
void RowsForm::awaitOtherCalls() { b.awaitOtherCalls(function, schedule); }

/// Where the program's columns of row `number` begin.
Value RowsForm::at(StringRef name, Value number) {
  return b.addI(b.mulI(number, arg((name + "_stride").str())), first);
}

Value RowsForm::load(StringRef name) {
  return b.toF32(tile::LoadOp::create(b, b.tileType({width}, element),
                                      arg(name), at(name, row), b.index(1),
                                      ValueRange{count}, kAccess, false));
}

void RowsForm::store(Value x, StringRef name) {
  tile::StoreOp::create(b, b.round(x, element), arg(name), at(name, row),
                        b.index(1), ValueRange{count}, kAccess, false);
}

/// The row stays where it was loaded to, and so do the weights, which no kernel
/// ahead writes: they are on their way while it still runs.
void RowsForm::buildNorm() {
  Value weight = b.once(
      tile::LoadOp::create(b, b.tileType({width}), arg("weight"), b.index(0),
                           b.index(1), ValueRange{count}, kAccess, false));
  awaitOtherCalls();
  Value x = b.once(b.toF32(b.round(b.add(load("x"), load("branch")), element)));
  store(x, "sum");
  Value integer = arith::IndexCastOp::create(b, b.getI64Type(), arg("D"));
  Value elements = arith::SIToFPOp::create(b, b.getF32Type(), integer);
  Value mean = arith::DivFOp::create(b, b.sum(b.mul(x, x), 0), elements);
  Value inverse = b.rsqrt(b.add(mean, arg("eps")));
  store(b.mul(b.mul(x, b.splat(inverse, {width})), weight), "out");
}

void RowsForm::buildAdd() {
  awaitOtherCalls();
  store(b.add(load("x"), load("branch")), "out");
}

void RowsForm::buildProduct(dplr::GatedProductOp product) {
  awaitOtherCalls();
  Value gate = load("gate"), up = load("up");
  Value open = b.sigmoid(gate);
  // limit * tanh(x / limit)
  auto limited = [&](Value x, StringRef name) {
    Value inverse = arith::DivFOp::create(b, b.f32(1), arg(name));
    Value share = b.tanh(b.mul(x, b.splat(inverse, {width})));
    return b.mul(share, b.splat(arg(name), {width}));
  };
  switch (product.getKind()) {
  case dplr::Product::Silu:
    open = b.mul(open, gate);
    break;
  case dplr::Product::Situ:
    open = b.mul(open, limited(gate, "beta"));
    up = limited(up, "linear");
    break;
  case dplr::Product::Sigmoid:
    break;
  }
  store(b.mul(open, up), "out");
}

/// The row of x that entry `entry` of the indices names. They live in device
/// memory, where the host cannot check them.
Value RowsForm::loadPicked(Value entry) {
  Value number = tile::LoadScalarOp::create(b, b.getIndexType(), arg("index"),
                                            entry, entry);
  Value last = b.subI(arg("R"), b.index(1));
  number = b.maxI(b.index(0), b.minI(number, last));
  Value some = b.minI(count, b.mulI(arg("R"), b.index(width)));
  return tile::LoadOp::create(b, b.tileType({width}, element), arg("x"),
                              at("x", number), b.index(1), ValueRange{some},
                              kAccess, false);
}

void RowsForm::buildGather() {
  awaitOtherCalls();
  tile::StoreOp::create(b, loadPicked(row), arg("out"), at("out", row),
                        b.index(1), ValueRange{count}, kAccess, false);
}

void RowsForm::buildCombine() {
  awaitOtherCalls();
  Value none = b.constantLike(b.splat(b.f32(0), {width}), 0.0);
  auto loop = scf::ForOp::create(b, b.index(0), arg("E"), b.index(1), none);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value entry = b.addI(b.mulI(row, arg("E")), loop.getInductionVar());
    Value scale = tile::LoadScalarOp::create(b, b.getF32Type(), arg("scales"),
                                             entry, b.f32(0));
    Value x = b.toF32(loadPicked(entry));
    Value sum = b.fma(x, b.splat(scale, {width}), loop.getRegionIterArg(0));
    scf::YieldOp::create(b, sum);
  }
  store(loop.getResult(0), "out");
}

void RowsForm::build() {
  locate(isa<dplr::RmsNormOp>(op));
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](dplr::RmsNormOp) { buildNorm(); })
      .Case([&](dplr::AddOp) { buildAdd(); })
      .Case([&](dplr::GatedProductOp product) { buildProduct(product); })
      .Case([&](dplr::GatherOp) { buildGather(); })
      .Case([&](dplr::CombineOp) { buildCombine(); });
  func::ReturnOp::create(b);
}

void buildRows(func::FuncOp source, Operation *op,
               tile::ScheduleAttr schedule) {
  RowsForm(source, op, schedule).build();
}

} // namespace kdac
