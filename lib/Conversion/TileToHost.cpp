// tile-to-host: every tile kernel becomes an llvm.func that runs a range of
// program instances. TileToHostPlan decides where values live, the Emitter's
// files write the code.
#include "TileToHostEmitter.h"
#include "kdac/Passes.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac {
#define GEN_PASS_DEF_TILETOHOSTPASS
#include "kdac/Passes.h.inc"
} // namespace kdac

namespace kdac::host {

//===-- Small pieces ------------------------------------------------------===//

Value Emitter::index(int64_t value) {
  return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
}

Value Emitter::f32(double value) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
}

Value Emitter::add(Value a, Value c) {
  return arith::AddIOp::create(b, loc, a, c);
}

Value Emitter::add(Value a, int64_t c) { return c ? add(a, index(c)) : a; }

Value Emitter::mul(Value a, int64_t c) {
  return arith::MulIOp::create(b, loc, a, index(c));
}

Type Emitter::vectorOf(Type element, int64_t lanes) {
  return lanes ? Type(VectorType::get({lanes}, element)) : element;
}

Value Emitter::splat(Value scalar, int64_t lanes) {
  if (!lanes)
    return scalar;
  return vector::BroadcastOp::create(
      b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
}

Value Emitter::zeros(int64_t lanes) { return splat(f32(0.0), lanes); }

Value Emitter::iota(int64_t lanes, int64_t bits) {
  Type type = b.getIntegerType(bits);
  SmallVector<Attribute> numbers;
  for (int64_t i = 0; i < lanes; ++i)
    numbers.push_back(b.getIntegerAttr(type, i));
  return arith::ConstantOp::create(
      b, loc, DenseElementsAttr::get(VectorType::get({lanes}, type), numbers));
}

void Emitter::loop(Value begin, Value end, int64_t step, Body body) {
  auto op = scf::ForOp::create(b, loc, begin, end, index(step));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.getBody());
  body(op.getInductionVar());
}

void Emitter::loop(int64_t begin, int64_t end, int64_t step, Body body) {
  if (begin + step == end)
    return body(index(begin));
  if (begin < end)
    loop(index(begin), index(end), step, body);
}

//===-- Control flow and scalars ------------------------------------------===//

void Emitter::emitKernel(func::FuncOp kernel, ValueRange args, Value program) {
  programId = program;
  scalars.map(kernel.getArguments(), args);
  emitBlock(kernel.getBody().front());
}

void Emitter::emitBlock(Block &block) {
  for (Operation &op : block.without_terminator())
    emitOp(&op);
}

void Emitter::emitOp(Operation *op) {
  TypeSwitch<Operation *>(op)
      .Case([&](scf::ForOp loop) { emitLoop(loop); })
      .Case([&](scf::IfOp branch) { emitIf(branch); })
      .Case([&](ProgramIdOp id) { scalars.map(id.getResult(), programId); })
      .Case([&](PresentOp present) {
        scalars.map(present.getResult(),
                    isPresent(scalars.lookup(present.getRef())));
      })
      .Case([&](ViewOp view) { emitView(view); })
      .Case([&](GuardOp guard) { emitGuard(guard); })
      .Case<PrefetchOp, AwaitLaunchOp, StartNextOp>([&](auto) {})
      .Case([&](ChooseOp choice) { emitChoose(choice); })
      .Case([&](CheckSlotsOp check) { emitCheckSlots(check); })
      .Case([&](LoadScalarOp load) { emitLoadScalar(load); })
      .Case([&](StoreOp store) { emitStore(store); })
      .Case([&](DotOp dot) { emitDot(dot); })
      .Case([&](DecayedGramOp gram) { emitGram(gram); })
      .Case([&](UnitTrilInverseOp inverse) { emitInverse(inverse); })
      .Case([&](CumsumOp sum) { emitCumsum(sum); })
      .Case([&](ReduceOp sum) { emitReduce(sum); })
      .Default([&](Operation *op) {
        Value result = op->getResult(0);
        auto load = dyn_cast<LoadOp>(op);
        if (load && load.getType().getRank() == 2 && !load.getTransposed())
          lookAhead(load);
        if (isa<RowOp>(op) && !tileType(result))
          scalars.map(result, compute(result, {}));
        else if (!tileType(result))
          emitScalar(op);
        else if (!plan.buffer(result))
          return; // inline: recomputed by its consumers
        else if (load && load.getTransposed())
          emitTransposedLoad(load);
        else if (load && load.getType().getRank() == 1)
          emitVectorLoad(load);
        else
          emitElementwise(result);
      });
}

Type Emitter::scalarType(Type type) {
  if (type.isIndex())
    return b.getI64Type();
  return isa<FloatType>(type) ? Type(b.getF32Type()) : type;
}

/// Scalars keep their ops, with index as i64 and every float as f32.
void Emitter::emitScalar(Operation *op) {
  Value result = op->getResult(0);
  Type type = scalarType(result.getType());
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    Attribute value = constant.getValue();
    Value scalar;
    if (auto number = dyn_cast<FloatAttr>(value))
      scalar = f32(number.getValueAsDouble());
    else
      scalar = arith::ConstantOp::create(
          b, loc, b.getIntegerAttr(type, cast<IntegerAttr>(value).getValue()));
    return scalars.map(result, scalar);
  }
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(scalars.lookup(operand));
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op))
    return scalars.map(
        result, castInteger(operands[0], type, isa<arith::IndexCastOp>(op)));
  if (Value value = mathOp(op, operands))
    return scalars.map(result, value);
  Operation *clone = b.clone(*op, scalars);
  clone->getResult(0).setType(type);
}

Value Emitter::castInteger(Value x, Type type, bool isSigned) {
  unsigned from = x.getType().getIntOrFloatBitWidth();
  unsigned to = type.getIntOrFloatBitWidth();
  if (from == to)
    return x;
  if (from > to)
    return arith::TruncIOp::create(b, loc, type, x);
  if (isSigned)
    return arith::ExtSIOp::create(b, loc, type, x);
  return arith::ExtUIOp::create(b, loc, type, x);
}

void Emitter::emitView(ViewOp op) {
  Value ref = scalars.lookup(op.getRef());
  Value bytes = index(op.getOffset());
  if (op.getAfter())
    bytes = add(scalars.lookup(op.getAfter()), bytes);
  Value start = LLVM::GEPOp::create(b, loc, ref.getType(), b.getI8Type(), ref,
                                    ArrayRef<LLVM::GEPArg>{bytes});
  scalars.map(op.getResult(), start);
}

void Emitter::emitLoadScalar(LoadScalarOp op) {
  Value ref = scalars.lookup(op.getRef());
  Type type = op.getRef().getType().getElementType();
  Type result = scalarType(op.getType());
  auto branch = scf::IfOp::create(b, loc, TypeRange{result}, isPresent(ref),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, scalars.lookup(op.getOtherwise()));
  b.setInsertionPointToStart(branch.thenBlock());
  Value raw = loadRaw(element(ref, type, scalars.lookup(op.getOffset())), type);
  Value value = isa<FloatType>(type) ? fromMemory(raw, type)
                                     : castInteger(raw, result, true);
  scf::YieldOp::create(b, loc, value);
  scalars.map(op.getResult(), branch.getResult(0));
}

/// Only scalars are carried as values; a carried tile is its buffer.
void Emitter::emitLoop(scf::ForOp loop) {
  SmallVector<Value> inits;
  for (Value init : loop.getInitArgs()) {
    if (!tileType(init))
      inits.push_back(scalars.lookup(init));
  }
  for (auto [init, arg] :
       llvm::zip_equal(loop.getInitArgs(), loop.getRegionIterArgs()))
    if (tileType(init) && plan.buffer(init) != plan.buffer(arg))
      copyBuffer(*plan.buffer(init), *plan.buffer(arg));
  auto lowered =
      scf::ForOp::create(b, loc, scalars.lookup(loop.getLowerBound()),
                         scalars.lookup(loop.getUpperBound()),
                         scalars.lookup(loop.getStep()), inits);
  scalars.map(loop.getInductionVar(), lowered.getInductionVar());
  auto arg = lowered.getRegionIterArgs().begin();
  auto result = lowered.getResults().begin();
  for (auto [from, to] :
       llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
    if (!tileType(from)) {
      scalars.map(from, *arg++);
      scalars.map(to, *result++);
    }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(lowered.getBody());
  emitBlock(*loop.getBody());
  emitYield(loop);
}

void Emitter::emitYield(scf::ForOp loop) {
  auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
  SmallVector<Value> values;
  for (auto [arg, next] :
       llvm::zip_equal(loop.getRegionIterArgs(), yield.getOperands())) {
    if (!tileType(arg))
      values.push_back(scalars.lookup(next));
    else if (plan.buffer(next) != plan.buffer(arg))
      copyBuffer(*plan.buffer(next), *plan.buffer(arg));
  }
  if (!values.empty())
    scf::YieldOp::create(b, loc, values);
}

/// Branches yield scalars only.
void Emitter::emitIf(scf::IfOp op) {
  SmallVector<Type> types;
  for (Type type : op.getResultTypes())
    types.push_back(scalarType(type));
  bool hasElse = !op.getElseRegion().empty();
  auto lowered = scf::IfOp::create(b, loc, types,
                                   scalars.lookup(op.getCondition()), hasElse);
  auto emitRegion = [&](Region &from, Block *to) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(to);
    emitBlock(from.front());
    SmallVector<Value> values;
    for (Value value : from.front().getTerminator()->getOperands())
      values.push_back(scalars.lookup(value));
    if (!values.empty())
      scf::YieldOp::create(b, loc, values);
  };
  emitRegion(op.getThenRegion(), lowered.thenBlock());
  if (hasElse)
    emitRegion(op.getElseRegion(), lowered.elseBlock());
  scalars.map(op.getResults(), lowered.getResults());
}

//===-- The pass ----------------------------------------------------------===//

/// Ops that the Emitter knows, with tiles.
static bool isSupported(Operation *op) {
  if (isa<func::FuncOp, func::ReturnOp, scf::ForOp, scf::YieldOp>(op) ||
      isa<TileDialect>(op->getDialect()))
    return true;
  bool hasTiles = llvm::any_of(op->getOperands(), tileType) ||
                  llvm::any_of(op->getResults(), tileType);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return !hasTiles || isa<SplatElementsAttr>(constant.getValue());
  if (isa<scf::IfOp>(op))
    return !hasTiles;
  bool isMath = isa<math::Exp2Op, math::Log2Op, math::RsqrtOp, math::SqrtOp,
                    math::AbsFOp, math::FmaOp, math::CopySignOp>(op);
  return isMath || (isa<arith::ArithDialect>(op->getDialect()) &&
                    op->getNumResults() == 1 && (!hasTiles || isPointwise(op)));
}

/// A loop may carry a tile on, not move it to another place among the carried.
static bool isSupportedYield(scf::YieldOp yield) {
  auto loop = dyn_cast<scf::ForOp>(yield->getParentOp());
  if (!loop)
    return true;
  return llvm::all_of(llvm::enumerate(yield.getOperands()), [&](auto operand) {
    Value value = operand.value();
    auto arg = dyn_cast<BlockArgument>(value);
    return !tileType(value) || !arg || arg.getOwner() != loop.getBody() ||
           loop.getRegionIterArgs()[operand.index()] == arg;
  });
}

/// Tiles in memory or carried by a loop are of rank 1 or 2 and f32 or narrower.
static bool isStorable(Value value) {
  RankedTensorType type = tileType(value);
  return !type || (type.getRank() <= 2 &&
                   isa<Float32Type, BFloat16Type, Float16Type, FloatTF32Type>(
                       type.getElementType()));
}

/// Why `op` cannot be lowered, or an empty string.
static StringRef refusal(Operation *op) {
  if (isa<CutOp, NumProgramsOp>(op))
    return "belongs to kernels with split roles, which only GPUs run; use "
           "roles "
           "fused on the host";
  if (!isSupported(op))
    return "expected an op that tile-to-host lowers: tile ops, elementwise "
           "arith, splat constants, scf.for, scf.if of scalars, and exp2, "
           "log2, "
           "rsqrt, sqrt, absf, fma of math";
  if (isa<LoadOp, StoreOp, scf::ForOp>(op) &&
      !(llvm::all_of(op->getOperands(), isStorable) &&
        llvm::all_of(op->getResults(), isStorable)))
    return "expected tiles in memory and across iterations to be bf16, f16, "
           "tf32 or f32 of rank 1 or 2";
  if (auto yield = dyn_cast<scf::YieldOp>(op);
      yield && !isSupportedYield(yield))
    return "expected carried tiles in their own places, but got them permuted";
  return "";
}

static LogicalResult checkKernel(func::FuncOp kernel) {
  if (!kernel.getBody().hasOneBlock() || kernel.getNumResults() != 0)
    return kernel.emitOpError()
           << "expected one block and no results for the host, but got "
           << kernel.getBody().getBlocks().size() << " blocks and "
           << kernel.getNumResults() << " results";
  for (Type type : kernel.getArgumentTypes())
    if (!isa<RefType, IndexType, Float32Type>(type))
      return kernel.emitOpError()
             << "expected arguments of type !tile.ref, index or f32, but got "
             << type;
  WalkResult result = kernel.walk([](Operation *op) {
    StringRef reason = refusal(op);
    if (reason.empty())
      return WalkResult::advance();
    op->emitOpError() << reason;
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// Reads argument `position` from the array of pointers to arguments.
static Value loadArgument(OpBuilder &b, Location loc, Value args,
                          int64_t position, Type type) {
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value slot = LLVM::GEPOp::create(b, loc, pointer, pointer, args,
                                   ArrayRef<LLVM::GEPArg>{int32_t(position)});
  Value address = LLVM::LoadOp::create(b, loc, pointer, slot);
  if (isa<RefType>(type))
    type = pointer;
  else if (type.isIndex())
    type = b.getI64Type();
  return LLVM::LoadOp::create(b, loc, type, address);
}

static LLVM::LLVMFuncOp createEntry(func::FuncOp kernel, const Plan &plan) {
  OpBuilder b(kernel);
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), {pointer, i64, i64, pointer});
  auto entry =
      LLVM::LLVMFuncOp::create(b, kernel.getLoc(), kernel.getName(), type);
  for (NamedAttribute attr : kernel->getDiscardableAttrs())
    entry->setAttr(attr.getName(), attr.getValue());
  entry->removeAttr(kKernelAttr);
  entry->setAttr(kScratchBytesAttr, b.getI64IntegerAttr(plan.scratchBytes()));
  // Scratch belongs to one thread.
  entry.setArgAttr(3, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  return entry;
}

static LogicalResult lowerKernel(func::FuncOp kernel, int64_t width) {
  if (failed(checkKernel(kernel)))
    return failure();
  Plan plan(kernel);
  constexpr int64_t kMostScratch = std::numeric_limits<int32_t>::max();
  if (plan.scratchBytes() > kMostScratch)
    return kernel.emitOpError() << "needs " << plan.scratchBytes()
                                << " bytes of scratch per thread, "
                                << "but tile-to-host addresses " << kMostScratch
                                << "; smaller tiles would fit";
  LLVM::LLVMFuncOp entry = createEntry(kernel, plan);
  OpBuilder b(kernel.getContext());
  Location loc = kernel.getLoc();
  b.setInsertionPointToStart(entry.addEntryBlock(b));
  SmallVector<Value> args;
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes()))
    args.push_back(loadArgument(b, loc, entry.getArgument(0), i, type));
  Value one = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(1));
  auto programs = scf::ForOp::create(b, loc, entry.getArgument(1),
                                     entry.getArgument(2), one);
  LLVM::ReturnOp::create(b, loc, ValueRange{});
  b.setInsertionPointToStart(programs.getBody());
  Emitter emitter(b, loc, plan, width, entry.getArgument(3));
  emitter.emitKernel(kernel, args, programs.getInductionVar());
  kernel.erase();
  return success();
}

namespace {
struct TileToHost : impl::TileToHostPassBase<TileToHost> {
  using TileToHostPassBase::TileToHostPassBase;

  void runOnOperation() override {
    int64_t width = vectorWidth;
    if (width < 1 || width > 64 || !llvm::isPowerOf2_64(width)) {
      getOperation().emitError()
          << "expected a vector-width that is a power of two from 1 to 64, "
             "but got "
          << width;
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> kernels;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kKernelAttr))
        kernels.push_back(function);
    for (func::FuncOp kernel : kernels)
      if (failed(lowerKernel(kernel, width)))
        return signalPassFailure();
  }
};
} // namespace

} // namespace kdac::host
