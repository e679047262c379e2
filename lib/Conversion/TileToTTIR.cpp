// The pass, and what a kernel consists of beside tiles: arguments, loops,
// scalars, elementwise ops.
#include "TileToTTIREmitter.h"
#include "kdac/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILETOTTIRPASS
#include "kdac/Passes.h.inc"

/// Bytes that pointers to floats are multiples of (launchArgs); indices keep
/// their own size only.
static constexpr int64_t kPointerAlignment = 16;

void TTIREmitter::createFunction() {
  SmallVector<Type> types;
  for (Type type : source.getArgumentTypes())
    types.push_back(convert(type));
  auto function =
      tt::FuncOp::create(b, source.getName(), b.getFunctionType(types, {}));
  function->setAttr("noinline", b.getBoolAttr(false));
  for (StringRef name : {"kdac.v_tile", "kdac.slices"})
    if (Attribute value = source->getAttr(name))
      function->setAttr(name, value);
  if (auto schedule =
          source->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr)) {
    function->setAttr("kdac.num_warps",
                      b.getI64IntegerAttr(schedule.getWarps()));
    function->setAttr("kdac.num_stages",
                      b.getI64IntegerAttr(schedule.getStages()));
  }
  Block *entry = b.createBlock(&function.getBody());
  for (auto [i, type] : llvm::enumerate(types)) {
    Value argument = entry->addArgument(type, source.getLoc());
    Value old = source.getArgument(i);
    values[old] = argument;
    if (Attribute name = source.getArgAttr(i, "kdac.name"))
      function.setArgAttr(i, "kdac.name", name);
    auto pointer = dyn_cast<tt::PointerType>(type);
    if (!pointer)
      continue;
    if (isa<FloatType>(pointer.getPointee()))
      function.setArgAttr(i, "tt.divisibility",
                          b.getI32IntegerAttr(kPointerAlignment));
    // Null: an optional argument that is absent.
    Value address = tt::PtrToIntOp::create(b, b.getI64Type(), argument);
    Value present = compare(arith::CmpIPredicate::ne, address, i64(0));
    refs[old] = {argument, present, {old}};
  }
}

/// What a launch through Triton asks of the schedule.
static LogicalResult checkSchedule(func::FuncOp source) {
  auto schedule =
      source->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
  if (!schedule)
    return success();
  if (schedule.getRoles() != "fused")
    return source.emitOpError() << "has no Triton IR with roles "
                                << schedule.getRoles() << "; use roles fused";
  if (!llvm::isPowerOf2_64(schedule.getWarps()))
    return source.emitOpError()
           << "has no Triton IR: expected a power of two of warps, but got "
           << schedule.getWarps() << "; use 4 or 8";
  return success();
}

LogicalResult TTIREmitter::run() {
  if (failed(checkSchedule(source)))
    return failure();
  createFunction();
  return emitBlock(source.getBody().front());
}

LogicalResult TTIREmitter::emitBlock(Block &block) {
  for (Operation &op : block)
    if (failed(emit(&op)))
      return failure();
  return success();
}

/// A program or loop number as the 64-bit integer that an index is here.
Value TTIREmitter::widened(Value i32) {
  return arith::ExtSIOp::create(b, b.getI64Type(), i32);
}

LogicalResult TTIREmitter::emit(scf::ForOp op) {
  SmallVector<Value> initial;
  for (Value value : op.getInitArgs())
    initial.push_back(at(value));
  auto loop =
      scf::ForOp::create(b, at(op.getLowerBound()), at(op.getUpperBound()),
                         at(op.getStep()), initial);
  auto schedule =
      source->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
  loop->setAttr("tt.num_stages",
                b.getI32IntegerAttr(schedule ? schedule.getStages() : 1));
  for (auto [old, value] :
       llvm::zip(op.getRegionIterArgs(), loop.getRegionIterArgs()))
    values[old] = value;
  values[op.getInductionVar()] = loop.getInductionVar();
  for (auto [old, value] : llvm::zip(op.getResults(), loop.getResults()))
    values[old] = value;
  OpBuilder::InsertionGuard guard(b);
  if (initial.empty())
    b.setInsertionPoint(loop.getBody()->getTerminator());
  else
    b.setInsertionPointToEnd(loop.getBody());
  return emitBlock(*op.getBody());
}

LogicalResult TTIREmitter::emit(arith::ConstantOp op) {
  Type type = convert(op.getType());
  auto scalarOf = [&](Attribute value) -> TypedAttr {
    Type element = getElementTypeOrSelf(type);
    if (auto number = dyn_cast<FloatAttr>(value))
      return b.getFloatAttr(element, number.getValueAsDouble());
    APInt bits = cast<IntegerAttr>(value).getValue();
    return b.getIntegerAttr(element,
                            bits.sextOrTrunc(element.getIntOrFloatBitWidth()));
  };
  Attribute value = op.getValue();
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    if (!dense.isSplat())
      return op.emitOpError() << "of different elements has no Triton IR; use "
                                 "tile.iota or one value for all elements";
    TypedAttr scalar = scalarOf(dense.getSplatValue<Attribute>());
    value = DenseElementsAttr::get(cast<ShapedType>(type), scalar);
  } else {
    value = scalarOf(value);
  }
  values[op] = arith::ConstantOp::create(b, cast<TypedAttr>(value));
  return success();
}

/// Triton lowers no ceildivsi: trunc((a - 1) / c) + 1 for a > 0, trunc(a / c)
/// else.
LogicalResult TTIREmitter::emit(arith::CeilDivSIOp op) {
  APInt divisor;
  if (!isa<IndexType>(op.getType()) ||
      !matchPattern(op.getRhs(), m_ConstantInt(&divisor)) ||
      !divisor.isStrictlyPositive())
    return op.emitOpError()
           << "has Triton IR for an index and a positive constant only";
  Value a = at(op.getLhs()), c = at(op.getRhs()), one = i64(1);
  Value above = arith::AddIOp::create(
      b, arith::DivSIOp::create(b, arith::SubIOp::create(b, a, one), c), one);
  Value below = arith::DivSIOp::create(b, a, c);
  Value isAbove = compare(arith::CmpIPredicate::sgt, a, i64(0));
  values[op] = arith::SelectOp::create(b, isAbove, above, below);
  return success();
}

/// The same op on the converted values.
LogicalResult TTIREmitter::emitElementwise(Operation *op) {
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, at(operand));
  Operation *copy = b.clone(*op, mapping);
  for (auto [old, value] : llvm::zip(op->getResults(), copy->getResults())) {
    value.setType(convert(old.getType()));
    values[old] = value;
  }
  return success();
}

/// What Triton lowers as it stands.
static bool isElementwise(Operation *op) {
  return isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::DivUIOp,
             arith::RemUIOp, arith::DivSIOp, arith::RemSIOp, arith::MinSIOp,
             arith::MaxSIOp, arith::AndIOp, arith::OrIOp, arith::XOrIOp,
             arith::CmpIOp, arith::SelectOp, arith::AddFOp, arith::SubFOp,
             arith::MulFOp, arith::DivFOp, arith::NegFOp, arith::MaximumFOp,
             arith::MinimumFOp, math::Exp2Op, math::RsqrtOp, math::AbsFOp>(op);
}

LogicalResult TTIREmitter::emit(Operation *op) {
  using namespace tile;
  if (isElementwise(op))
    return emitElementwise(op);
  auto same = [&](Value result, Value value) {
    values[result] = value;
    return success();
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<scf::ForOp, arith::ConstantOp, arith::CeilDivSIOp, arith::TruncFOp,
            LoadOp, StoreOp, LoadScalarOp, GuardOp, ChooseOp, tile::SplatOp,
            IotaOp, tile::BroadcastOp, RowOp, tile::ReduceOp, CumsumOp,
            tile::DotOp, DecayedGramOp, UnitTrilInverseOp>(
          [&](auto typed) { return emit(typed); })
      .Case([&](arith::ExtFOp ext) {
        Value x = at(ext.getIn());
        if (convert(ext.getType()) == x.getType()) // tf32 is kept as f32
          return same(ext, x);
        return emitElementwise(ext);
      })
      .Case([&](ProgramIdOp id) {
        return same(id, widened(tt::GetProgramIdOp::create(b, b.getI32Type(),
                                                           tt::ProgramDim::X)));
      })
      .Case([&](NumProgramsOp number) {
        return same(number, widened(tt::GetNumProgramsOp::create(
                                b, b.getI32Type(), tt::ProgramDim::X)));
      })
      .Case([&](PresentOp p) { return same(p, ref(p.getRef()).present); })
      .Case([&](OnceOp once) { return same(once, at(once.getInput())); })
      .Case([&](PrefetchOp) { return success(); }) // a hint
      .Case([&](math::FmaOp fma) {
        Value product =
            arith::MulFOp::create(b, at(fma.getA()), at(fma.getB()));
        return same(fma, arith::AddFOp::create(b, product, at(fma.getC())));
      })
      // Triton launches kernels one after the other.
      .Case<AwaitLaunchOp, StartNextOp>([&](auto) { return success(); })
      .Case([&](scf::YieldOp yield) {
        if (yield.getNumOperands() == 0)
          return success();
        SmallVector<Value> results;
        for (Value value : yield.getOperands())
          results.push_back(at(value));
        scf::YieldOp::create(b, results);
        return success();
      })
      .Case([&](func::ReturnOp) {
        tt::ReturnOp::create(b);
        return success();
      })
      .Case<CutOp, ViewOp>([&](auto typed) {
        return typed.emitOpError()
               << "has no Triton IR: its kernel is several launches with a "
                  "workspace between them; use roles fused";
      })
      .Default([](Operation *other) {
        return other->emitOpError()
               << "is not supported by tile-to-ttir; tile ops, elementwise "
                  "arith, scf.for, and exp2, rsqrt and absf of math are";
      });
}

namespace {
struct TileToTTIR : impl::TileToTTIRPassBase<TileToTTIR> {
  /// The one kernel of the module. A kernel that checks slot indices is
  /// dropped, as a launch through Triton is an unchecked one, and so is that
  /// for shared key heads, which such a launch must not have.
  FailureOr<func::FuncOp> onlyKernel() {
    SmallVector<func::FuncOp> kernels;
    for (auto function :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      bool isBeside = function->hasAttr(tile::kKeyCachesAttr);
      function.walk([&](tile::CheckSlotsOp) { isBeside = true; });
      if (isBeside)
        function.erase();
      else if (function->hasAttr(tile::kKernelAttr))
        kernels.push_back(function);
    }
    if (kernels.size() == 1)
      return kernels.front();
    getOperation().emitError() << "expected one tile kernel, since a Triton IR "
                                  "file holds one, but got "
                               << kernels.size();
    return failure();
  }

  void runOnOperation() override {
    FailureOr<func::FuncOp> kernel = onlyKernel();
    if (failed(kernel) || failed(TTIREmitter(*kernel).run()))
      return signalPassFailure();
    kernel->erase();
  }
};
} // namespace

} // namespace kdac
