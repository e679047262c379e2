// The frame of the NVVM exit: kernels, scalars, barriers, and which op is
// lowered where.
#include "GpuRoles.h"
#include "TileVerifyAsync.h"
#include "kdac/Passes.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILETONVVMPASS
#include "kdac/Passes.h.inc"

static bool isTile(Value value) {
  return isa<RankedTensorType>(value.getType());
}

GpuLowering::GpuLowering(func::FuncOp kernel, int64_t minBlocks)
    : kernel(kernel),
      schedule(kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr)),
      builder(kernel), b(kernel.getLoc(), builder), minBlocks(minBlocks) {
  warps = schedule.getWarps();
  threads = 32 * warps;
  // Addresses through slots, and those of a layer's parts, take registers: as
  // many threads as the bare kernel without slots has on an SM by itself.
  bool isWide =
      schedule.getStages() > 1 || !kernel.getOps<tile::GuardOp>().empty();
  if (schedule.getForm() == "step" && !minBlocks && isWide)
    this->minBlocks = std::max<int64_t>(1, 512 / threads);
  // The state is the one tile read outside the loop.
  kernel.walk([&](tile::LoadOp load) {
    auto type = cast<RankedTensorType>(load.getResult().getType());
    if (type.getRank() != 2 || load->getParentOfType<scf::ForOp>())
      return;
    stateIsVFirst = load.getTransposed();
    stateElement = type.getElementType();
  });
}

//===-- Placement
//----------------------------------------------------------===//

tile::PlaceAttr GpuLowering::place(Value value, unsigned extra) const {
  auto result = dyn_cast<OpResult>(value);
  if (!result)
    return {};
  auto all = result.getOwner()->getAttrOfType<ArrayAttr>(tile::kPlaceAttr);
  if (!all)
    return {};
  return cast<tile::PlaceAttr>(all[result.getResultNumber() + extra]);
}

tile::Home GpuLowering::home(Value value) const {
  if (registers.count(value))
    return tile::Home::Registers;
  tile::PlaceAttr at = place(value);
  return at ? at.getHome() : tile::Home::Inline; // constants have no place
}

//===-- Hazards
//------------------------------------------------------------===//

GpuLowering::Range GpuLowering::range(Value value, unsigned extra) const {
  tile::PlaceAttr at = place(value, extra);
  if (at.getStages() > 1)
    return {at.getOffset(),
            at.getOffset() + at.getStages() * stageBytes(value)};
  auto type = cast<RankedTensorType>(value.getType());
  Type element = type.getElementType();
  int64_t rows = type.getRank() == 2 ? type.getDimSize(0) : 1;
  auto gram = value.getDefiningOp<tile::DecayedGramOp>();
  unsigned number = cast<OpResult>(value).getResultNumber() + extra;
  if (gram && number >= gram->getNumResults()) // scratch holds scaled rows
    element = gram.getOperand();
  int64_t length =
      type.getRank() == 2 ? rows * at.getPitch() : type.getDimSize(0);
  return {at.getOffset(), at.getOffset() + length * bytesOf(element)};
}

SmallVector<GpuLowering::Range>
GpuLowering::rangesRead(ValueRange values) const {
  SmallVector<Value> leaves;
  for (Value value : values)
    sharedLeaves(value, leaves);
  return llvm::map_to_vector(leaves, [&](Value leaf) { return range(leaf); });
}

void GpuLowering::synchronise() {
  b.barrier();
  pendingReads.clear();
  pendingWrites.clear();
}

void GpuLowering::access(ArrayRef<Range> reads, ArrayRef<Range> writes) {
  auto overlaps = [](ArrayRef<Range> xs, ArrayRef<Range> ys) {
    return llvm::any_of(xs, [&](Range x) {
      return llvm::any_of(ys, [&](Range y) {
        return x.first < y.second && y.first < x.second;
      });
    });
  };
  if (overlaps(reads, pendingWrites) || overlaps(writes, pendingReads) ||
      overlaps(writes, pendingWrites))
    synchronise();
  pendingReads.append(reads.begin(), reads.end());
  pendingWrites.append(writes.begin(), writes.end());
}

//===-- Kernel
//-------------------------------------------------------------===//

/// Bytes of shared memory that wgmma or bulk copies read, begin and end in
/// turn.
static SmallVector<int64_t> asyncBytes(func::FuncOp kernel,
                                       tile::ScheduleAttr schedule) {
  if (auto image = kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image"))
    return {image[0], image[0] + schedule.getStages() * image[2]};
  SmallVector<int64_t> ranges;
  auto add = [&](tile::PlaceAttr place, int64_t bytes) {
    int64_t all = (place.getStages() - 1) * place.getStride() + bytes;
    ranges.append({place.getOffset(), place.getOffset() + all});
  };
  kernel.walk([&](Operation *op) {
    auto places = op->getAttrOfType<ArrayAttr>(tile::kPlaceAttr);
    if (!places || places.empty())
      return;
    auto place = cast<tile::PlaceAttr>(places[0]);
    auto store = dyn_cast<tile::StoreOp>(op);
    if (!store && place.getHome() != tile::Home::Panels)
      return;
    Value tile = store ? Value(store.getValue()) : op->getResult(0);
    auto type = cast<RankedTensorType>(tile.getType());
    add(place, type.getNumElements() * tile::bytesOf(type.getElementType()));
  });
  return ranges;
}

void GpuLowering::createKernel() {
  auto global = LLVM::LLVMPointerType::get(b.getContext(), 1);
  auto sharedPointer = LLVM::LLVMPointerType::get(b.getContext(), 3);
  SmallVector<Type> types;
  for (Type type : kernel.getArgumentTypes())
    types.push_back(isa<tile::RefType>(type) ? Type(global)
                    : type.isIndex()         ? Type(b.getI64Type())
                                             : type);
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), types);
  std::string memory = (kernel.getName() + "_shared").str();
  auto array = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, array, /*isConstant=*/false,
                         LLVM::Linkage::External, memory, Attribute(),
                         /*alignment=*/1024,
                         /*addrSpace=*/3);
  function = LLVM::LLVMFuncOp::create(b, kernel.getName(), type);
  function->setAttr("nvvm.kernel", b.getUnitAttr());
  function->setAttr("nvvm.reqntid", b.getDenseI32ArrayAttr(
                                        {static_cast<int32_t>(threads), 1, 1}));
  if (auto wanted = kernel->getAttrOfType<IntegerAttr>("kdac.min_blocks");
      wanted && minBlocks == 0)
    minBlocks = wanted.getInt();
  if (minBlocks > 0)
    function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(minBlocks));
  if (int64_t blocks = tile::clusterBlocks(schedule); blocks > 1)
    function->setAttr(
        "nvvm.cluster_dim",
        b.getDenseI32ArrayAttr({static_cast<int32_t>(blocks), 1, 1}));
  for (StringRef name :
       {StringRef("kdac.v_tile"), StringRef("kdac.shared_bytes"),
        StringRef("kdac.block_threads"), StringRef("kdac.grid"),
        StringRef("kdac.when"), StringRef("kdac.workspace"),
        StringRef("kdac.overlaps"), StringRef("kdac.sizes"),
        StringRef(tile::kBesideAttr), StringRef(tile::kWaitsAttr)})
    if (Attribute attr = kernel->getAttr(name))
      function->setAttr(name, attr);
  function->setAttr("kdac.schedule", schedule);
  if (auto ranges = asyncBytes(kernel, schedule); !ranges.empty())
    function->setAttr(kAsyncBytesAttr, b.getDenseI64ArrayAttr(ranges));

  Block *entry = function.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  for (auto [from, to] :
       llvm::zip(kernel.getArguments(), entry->getArguments())) {
    if (from.getType().isIndex())
      scalars.map(from, arith::IndexCastOp::create(b, b.getIndexType(), to));
    else
      scalars.map(from, to);
  }
  sharedBase = LLVM::AddressOfOp::create(b, sharedPointer, memory);
  block = NVVM::BlockIdXOp::create(b, b.getI32Type());
  locateThread(NVVM::ThreadIdXOp::create(b, b.getI32Type()));
}

/// Starts a region: where the thread is, and a place for layout coordinates.
void GpuLowering::locateThread(Value threadIndex) {
  thread = threadIndex;
  lane = b.rem(thread, 32);
  warp = b.div(thread, 32);
  layoutAnchor = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
}

LogicalResult GpuLowering::run() {
  if (tile::hasWarpRoles(schedule))
    return RoleLowering(*this).run();
  createKernel();
  return lowerBlock(kernel.getBody().front());
}

LogicalResult GpuLowering::lowerBlock(Block &block) {
  for (Operation &op : block)
    if (!isFoundLate(&op) && !joinsBatch(&op) && failed(lowerOp(&op)))
      return failure();
  return success();
}

void GpuLowering::lowerLoadScalar(tile::LoadScalarOp op) {
  Value ref = scalars.lookup(op.getRef());
  Type element = op.getRef().getType().getElementType();
  Value present = presence(op.getRef());
  Type type = op.getResult().getType();
  if (schedule.getForm() == "step") {
    Value pointer =
        b.pointer(ref, b.toI64(scalars.lookup(op.getOffset())), element);
    Value loaded = b.loadScalarIf(present, pointer, element,
                                  scalars.lookup(op.getOtherwise()));
    if (type.isIndex())
      loaded = arith::IndexCastOp::create(b, type, loaded);
    return scalars.map(op.getResult(), loaded);
  }
  auto branch = scf::IfOp::create(b, TypeRange{type}, present, true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value pointer =
        b.pointer(ref, b.toI64(scalars.lookup(op.getOffset())), element);
    Value loaded;
    if (isa<IntegerType>(element)) {
      Value raw = LLVM::LoadOp::create(b, element, pointer);
      loaded = arith::IndexCastOp::create(b, b.getIndexType(), raw);
    } else {
      loaded = b.load(pointer, element, 1, bytesOf(element), !isOneRow())[0];
    }
    scf::YieldOp::create(b, loaded);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, scalars.lookup(op.getOtherwise()));
  }
  scalars.map(op.getResult(), branch.getResult(0));
}

void GpuLowering::lowerScalar(Operation *op) {
  if (isa<math::MathDialect>(op->getDialect()) ||
      isa<arith::MulFOp, arith::AddFOp, arith::DivFOp>(op)) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(scalars.lookup(operand));
    scalars.map(op->getResult(0), applyScalar(op, operands));
    return;
  }
  // Programs and heads are fewer than 2^31, as a grid of more is refused, and
  // so are the keys of a sequence.
  bool isNarrow =
      schedule.getForm() == "step" || schedule.getForm() == "attention";
  if (isNarrow && isa<arith::DivUIOp, arith::RemUIOp>(op))
    return lowerDivision(op);
  b.clone(*op, scalars);
}

void GpuLowering::lowerDivision(Operation *op) {
  Value x = b.toI32(scalars.lookup(op->getOperand(0)));
  Value y = b.toI32(scalars.lookup(op->getOperand(1)));
  Value result = isa<arith::DivUIOp>(op)
                     ? Value(arith::DivUIOp::create(b, x, y))
                     : Value(arith::RemUIOp::create(b, x, y));
  // Here, and not where it is needed first: there a load waits for it. Beside a
  // whole head's state on its way registers are too few to keep it.
  bool isCrowded =
      schedule.getStages() > 1 &&
      llvm::any_of(kernel.getOps<scf::ForOp>(),
                   [&](scf::ForOp loop) { return firstStateOf(loop); });
  if (!isCrowded)
    result = b.opaqueWord(result);
  scalars.map(op->getResult(0),
              arith::IndexCastUIOp::create(b, b.getIndexType(), result));
}

/// Copies a tile of global memory to its shared buffer in 16-byte pieces. Loads
/// are all issued before the first is stored, so that their latencies overlap.
void GpuLowering::copyToShared(tile::LoadOp op) {
  access({}, {range(op.getResult())});
  forget();
  auto type = op.getResult().getType();
  int64_t bytes = bytesOf(type.getElementType());
  Layout layout =
      linear(type.getShape(), std::min<int64_t>(op.getAlign(), 16) / bytes);
  SmallVector<Value> loaded;
  for (auto [i, group] : llvm::enumerate(layout.groups))
    loaded.push_back(loadGlobalRaw(
        op, group, layout.guards.empty() ? Value() : layout.guards[i]));
  tile::PlaceAttr at = place(op.getResult());
  for (auto [i, group] : llvm::enumerate(layout.groups)) {
    OpBuilder::InsertionGuard guard(b);
    if (!layout.guards.empty()) {
      auto branch = scf::IfOp::create(b, layout.guards[i], false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    Value pointer = sharedAddress(at.getOffset(), at.getPitch(),
                                  type.getElementType(), group.row, group.col);
    LLVM::StoreOp::create(b, loaded[i], pointer, group.width * bytes);
  }
}

/// A vector of column totals: of the threads that share a column's, one stores.
void GpuLowering::columnsToShared(Value vector, Value result) {
  access(rangesRead(vector), {range(result)});
  const Layout &layout = *layouts.front().second;
  for (const Group &group : layout.columns) {
    Values elements = evaluate(vector, group);
    auto branch = scf::IfOp::create(b, layout.firstRowLane, false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    storeShared(result, group, elements);
  }
}

/// Computes a value into its shared buffer, in the layout of what it is made
/// of.
void GpuLowering::materialise(Operation *op, Value result) {
  auto load = dyn_cast<tile::LoadOp>(op);
  auto type = cast<RankedTensorType>(result.getType());
  if (load && type.getRank() == 2)
    return copyToShared(load);
  if (isa<tile::OnceOp>(op) && hasRegisterLeaf(op->getOperand(0)))
    return columnsToShared(op->getOperand(0), result);
  // The store does the rounding of a rounding op.
  Value source = roundedSource(result);
  bool isRounding = source != result;
  access(load ? SmallVector<Range>() : rangesRead(op->getOperands()),
         {range(result)});
  bool fromRegisters = llvm::any_of(
      op->getOperands(), [&](Value x) { return hasRegisterLeaf(x); });
  // Vectors of a layer take turns over the threads: several at a time.
  int64_t size = type.getDimSize(0);
  Value everyone = thread;
  if (isa<tile::OnceOp>(op) && size < threads) {
    thread = b.rem(b.add(thread, threads - nextTurn), threads);
    nextTurn = (nextTurn + size) % threads;
  }
  Layout made;
  if (!fromRegisters)
    made =
        linear(type.getShape(),
               type.getRank() == 1 ? 1 : 16 / bytesOf(type.getElementType()));
  thread = everyone;
  const Layout &layout = fromRegisters ? distributed(type.getShape()) : made;
  computeToShared(result, layout, [&](const Group &group) {
    return isRounding ? evaluate(source, group) : evaluateOp(op, group);
  });
}

/// Stores what `compute` gives for each group of a layout in `result`'s buffer.
void GpuLowering::computeToShared(
    Value result, const Layout &layout,
    llvm::function_ref<Values(const Group &)> compute) {
  forget();
  forGroups(layout, [&](const Group &group) {
    storeShared(result, group, compute(group));
  });
}

GpuLowering::Values
GpuLowering::distribute(Value tile,
                        llvm::function_ref<Values(const Group &)> compute) {
  const Layout &layout =
      distributed(cast<RankedTensorType>(tile.getType()).getShape());
  Values elements(layout.slots);
  for (const Group &group : layout.groups)
    llvm::copy(compute(group), elements.begin() + group.slot);
  return elements;
}

LogicalResult GpuLowering::lowerOp(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return lowerLoop(loop);
  if (isa<func::ReturnOp>(op)) {
    if (withoutToken)
      b.setInsertionPointAfter(withoutToken);
    if (failed(lowerPrefetches()))
      return failure();
    awaitBulkStores();
    LLVM::ReturnOp::create(b, ValueRange());
    return success();
  }
  if (auto id = dyn_cast<tile::ProgramIdOp>(op)) {
    scalars.map(id.getResult(),
                arith::IndexCastUIOp::create(b, b.getIndexType(), block));
    return success();
  }
  if (auto programs = dyn_cast<tile::NumProgramsOp>(op)) {
    Value grid = NVVM::GridDimXOp::create(b, b.getI32Type());
    scalars.map(programs.getResult(),
                arith::IndexCastUIOp::create(b, b.getIndexType(), grid));
    return success();
  }
  if (auto view = dyn_cast<tile::ViewOp>(op)) {
    Value after =
        view.getAfter() ? b.toI64(scalars.lookup(view.getAfter())) : Value();
    scalars.map(view.getResult(), b.bytes(scalars.lookup(view.getRef()), after,
                                          view.getOffset()));
    return success();
  }
  if (auto present = dyn_cast<tile::PresentOp>(op)) {
    scalars.map(present.getResult(), presence(present.getRef()));
    return success();
  }
  LogicalResult result = success();
  bool known =
      llvm::TypeSwitch<Operation *, bool>(op)
          .Case([&](tile::LoadScalarOp x) { return lowerLoadScalar(x), true; })
          .Case([&](tile::GuardOp x) { return lowerGuard(x), true; })
          .Case([&](tile::PrefetchOp x) {
            if (x.getNow())
              lowerPrefetch(x);
            else
              heldPrefetches.push_back(x);
            return true;
          })
          .Case([&](tile::AwaitLaunchOp) { return lowerAwaitLaunch(), true; })
          .Case([&](tile::StartNextOp) { return lowerStartNext(), true; })
          .Case([&](tile::ChooseOp x) { return lowerChoose(x), true; })
          .Case([&](tile::CheckSlotsOp x) { return lowerCheckSlots(x), true; })
          .Case([&](tile::StoreOp x) { return lowerStore(x), true; })
          .Case([&](tile::DotOp x) { return lowerDot(x), true; })
          .Case([&](tile::DecayedGramOp x) { return lowerGram(x), true; })
          .Case([&](tile::CumsumOp x) { return lowerCumsum(x), true; })
          .Case([&](tile::ReduceOp x) { return result = lowerReduce(x), true; })
          .Case(
              [&](tile::UnitTrilInverseOp x) { return lowerInverse(x), true; })
          .Default(false);
  if (known)
    return result;
  if (isa<tile::WindowOp>(op) && schedule.getForm() != "rows")
    return op->emitOpError()
           << "has a lowering to NVVM in kernels of form rows "
              "only";
  if (op->getNumResults() != 1)
    return op->emitOpError() << "has no lowering to NVVM in stage tile-to-nvvm";
  Value made = op->getResult(0);
  if (!isTile(made)) {
    if (auto row = dyn_cast<tile::RowOp>(op))
      lowerRowScalar(row);
    else
      lowerScalar(op);
    return success();
  }
  tile::Home where = home(made);
  if (where == tile::Home::Shared && place(made).getStages() == 1)
    materialise(op, made);
  if (where == tile::Home::Registers && schedule.getForm() != "chunk")
    access(rangesRead(op->getOperands()), {});
  if (where == tile::Home::Registers)
    registers[made] = distribute(
        made, [&](const Group &group) { return evaluateOp(op, group); });
  return success(); // the rest is computed where it is consumed
}

namespace {

struct TileToNVVM : impl::TileToNVVMPassBase<TileToNVVM> {
  using TileToNVVMPassBase::TileToNVVMPassBase;

  /// What the options say of the kernel of this name.
  FailureOr<int64_t> blocksOf(StringRef name) {
    for (StringRef entry : minBlocksOf) {
      auto [kernel, blocks] = entry.rsplit('=');
      int64_t number;
      if (blocks.getAsInteger(10, number))
        return getOperation().emitError("min-blocks-of '")
               << entry << "' is not KERNEL=N";
      if (kernel == name)
        return number;
    }
    return minBlocks.getValue();
  }

  void runOnOperation() override {
    SmallVector<func::FuncOp> kernels;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (kernel->hasAttr(tile::kKernelAttr))
        kernels.push_back(kernel);
    for (func::FuncOp kernel : kernels) {
      FailureOr<int64_t> blocks = blocksOf(kernel.getName());
      if (failed(blocks) || failed(GpuLowering(kernel, *blocks).run()))
        return signalPassFailure();
      kernel.erase();
    }
  }
};

} // namespace
} // namespace kdac
