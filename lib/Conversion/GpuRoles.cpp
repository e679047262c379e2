// The frame of a kernel whose roles are warps: what all threads do before they
// part, and which warps run which role.
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

/// Calls `keep` for every scalar that roles read from shared memory.
void RoleLowering::forScalars(
    llvm::function_ref<void(Value, Value pointer, int64_t align)> keep) {
  Value bytes = copy       ? copyBytes(copy)
                : readCopy ? copyBytes(readCopy())
                           : Value();
  for (Operation &op : at.kernel.getBody().front())
    if (auto offset = op.getAttrOfType<IntegerAttr>("tile.scalar"))
      keep(op.getResult(0), pointer(bytes, offset.getInt()),
           offset.getInt() % 8 ? 4 : 8);
}

/// A thread a sequence: the one with `rank` others before it says so. The word
/// it writes is scratch that no role uses yet.
void RoleLowering::lowerLongest(tile::LongestOp op) {
  constexpr int64_t ranked = 128;
  Value ref = at.scalars.lookup(op.getOffsets());
  Type element = op.getOffsets().getType().getElementType();
  Value rank = b.toI32(at.scalars.lookup(op.getRank()));
  Value count = b.toI32(at.scalars.lookup(op.getCount()));
  auto scratch = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.scratch");
  auto length = [&](Value n) -> Value {
    Value first = b.pointer(ref, b.toI64(n), element);
    Value end = b.toI64(
        LLVM::LoadOp::create(b, element, b.pointer(first, b.i64(1), element)));
    return arith::SubIOp::create(
        b, end, b.toI64(LLVM::LoadOp::create(b, element, first)));
  };
  Value word; // of this copy, bytes
  if (copy)
    word = b.mul(threadGroup, 4);
  Value present = b.isPresent(ref);
  Value isRanked =
      arith::AndIOp::create(b, present, b.less(count, b.i32(ranked + 1)));
  auto made = scf::IfOp::create(b, TypeRange{b.getI32Type()}, isRanked, true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.thenBlock());
    branch(b.less(at.thread, count), [&] {
      Value own = length(at.thread);
      Values before = {b.i32(0)};
      loop(b.i32(0), count, 1, before, [&](Value other, Values &before) {
        Value theirs = length(other);
        Value isLonger =
            arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, theirs, own);
        Value isEqual = b.equal(theirs, own);
        Value isFirst = arith::OrIOp::create(
            b, isLonger,
            arith::AndIOp::create(b, isEqual, b.less(other, at.thread)));
        before[0] = b.add(before[0], select(isFirst, b.i32(1), b.i32(0)));
      });
      branch(b.equal(before[0], rank), [&] {
        LLVM::StoreOp::create(b, at.thread, pointer(word, scratch[0]), 4);
      });
    });
    b.barrier();
    Value found =
        LLVM::LoadOp::create(b, b.getI32Type(), pointer(word, scratch[0]), 4);
    scf::YieldOp::create(b, found);
    b.setInsertionPointToStart(made.elseBlock());
    scf::YieldOp::create(b, rank);
  }
  at.scalars.map(op.getResult(), arith::IndexCastOp::create(b, b.getIndexType(),
                                                            made.getResult(0)));
}

/// True if all that needs `value` in the chunk loop is made by prepare.
bool RoleLowering::isPreparersAlone(Value value) const {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (preparersOwn.contains(user))
      return true;
    auto role = user->getAttrOfType<StringAttr>(tile::kRoleAttr);
    if (!chunkLoop->isProperAncestor(user) || !role ||
        role.getValue() != tile::kPrepareRole)
      return false;
    // What is recomputed where it is used may be so by the chain.
    return llvm::all_of(user->getResults(), [&](Value made) {
      bool isKept = at.place(made) && at.place(made).getStages() > 1;
      return isKept || isPreparersAlone(made);
    });
  });
}

/// Biases, and numbers made of what memory has of a head: nothing waits for
/// them but prepare, and that for rows first.
void RoleLowering::findPreparersOwn() {
  if (!prepares() || isAssisted())
    return;
  for (Operation &op : llvm::reverse(at.kernel.getBody().front())) {
    if (op.getNumResults() != 1 || !op.isBeforeInBlock(chunkLoop) ||
        op.hasTrait<OpTrait::ConstantLike>())
      continue;
    Value made = op.getResult(0);
    auto vector = dyn_cast<RankedTensorType>(made.getType());
    bool isVector = vector && vector.getRank() == 1 && isa<tile::LoadOp>(op);
    if ((isVector || made.getType().isF32()) && isPreparersAlone(made))
      preparersOwn.insert(&op);
  }
  // What they are made of must be in shared memory: registers of the prologue
  // may be about another program.
  for (Operation &op : at.kernel.getBody().front()) {
    bool isKnown = llvm::all_of(op.getOperands(), [&](Value operand) {
      Operation *source = operand.getDefiningOp();
      return !source || source->hasTrait<OpTrait::ConstantLike>() ||
             source->hasAttr("tile.scalar") || preparersOwn.contains(source);
    });
    if (!isKnown)
      preparersOwn.erase(&op);
  }
}

/// By the warps that prepare, when they begin.
void RoleLowering::lowerPreparersOwn() {
  if (preparersOwn.empty())
    return;
  int64_t before = 128 * chainWarpgroups();
  Value everyone = at.thread;
  at.thread = b.add(at.thread, -before);
  for (Operation &op : at.kernel.getBody().front())
    if (preparersOwn.contains(&op))
      (void)at.lowerOp(&op);
  branch(b.equal(at.thread, b.i32(0)), [&] {
    forScalars([&](Value scalar, Value pointer, int64_t align) {
      if (preparersOwn.contains(scalar.getDefiningOp()))
        LLVM::StoreOp::create(b, at.scalars.lookup(scalar), pointer, align);
    });
  });
  at.thread = everyone;
  int64_t pairs = tile::preparePairs(at.schedule);
  b.namedBarrier(b.i32(pairs + 2), 64 * pairs);
  readScalars();
}

/// What all threads do before they part: scalars and vectors of the whole
/// kernel.
LogicalResult RoleLowering::lowerPrologue() {
  Value everyone = at.thread;
  if (keepsCopies())
    shareOutThreads();
  for (Operation &op : at.kernel.getBody().front()) {
    if (&op == chunkLoop.getOperation())
      break;
    auto program = dyn_cast<tile::ProgramIdOp>(op);
    if (preparersOwn.contains(&op))
      continue;
    if (auto longest = dyn_cast<tile::LongestOp>(op))
      lowerLongest(longest);
    else if (program && copy)
      at.scalars.map(program.getResult(), programOfCopy());
    else if (&op != state.getOperation() && !isa<arith::ExtFOp>(op) &&
             failed(lowerCopied(&op)))
      return failure();
  }
  Value writes = b.equal(at.thread, b.i32(0));
  if (copy)
    writes = arith::AndIOp::create(b, writes, makesCopy);
  branch(writes, [&] {
    forScalars([&](Value scalar, Value pointer, int64_t align) {
      if (preparersOwn.contains(scalar.getDefiningOp()))
        return;
      Value value = at.scalars.lookup(scalar);
      if (value.getType().isIndex())
        value = b.toI64(value);
      LLVM::StoreOp::create(b, value, pointer, align);
    });
  });
  at.thread = everyone;
  copy = {};
  return success();
}

/// Reads the scalars again. What is not used needs no load; what is used soon
/// needs no register for its neighbour if they are loaded `apart`.
void RoleLowering::readScalars(bool apart) {
  b.memoryFence();
  forScalars([&](Value scalar, Value pointer, int64_t align) {
    Value known = at.scalars.lookupOrNull(scalar); // a pointer, perhaps
    Type type = known ? known.getType() : scalar.getType();
    if (apart)
      b.memoryFence();
    Value value = LLVM::LoadOp::create(
        b, type.isIndex() ? b.getI64Type() : type, pointer, align);
    if (type.isIndex())
      value = arith::IndexCastOp::create(b, b.getIndexType(), value);
    at.scalars.map(scalar, value);
  });
  roleScalars = at.scalars;
  chunks = b.toI32(at.scalars.lookup(chunkLoop.getUpperBound()));
}

/// The system and the attention are lower triangular, and only their lower
/// blocks are ever written. By the block's first warpgroup.
void RoleLowering::zeroAboveDiagonal(int64_t firstStage) {
  tile::PlaceAttr place = at.place(parts.attention);
  int64_t first = place.getOffset() & ~int64_t(1023);
  // Of one image, 16 bytes each; without a system its half of all rows as well.
  int64_t rows = parts.inverse ? tile::kRoleBlock : chunkRows();
  int64_t words = rows * 128 / 16;
  auto type = VectorType::get({4}, b.getI32Type());
  Value zero = LLVM::ZeroOp::create(b, type);
  constexpr int64_t warpgroup = 128;
  branch(b.less(at.thread, b.i32(warpgroup)), [&] {
    for (int64_t stage = firstStage; stage < place.getStages(); ++stage)
      for (int64_t word = 0; word < words; word += warpgroup)
        LLVM::StoreOp::create(
            b, zero,
            pointer(b.mul(at.thread, 16),
                    first + stage * place.getStride() + 16 * word),
            16);
  });
}

void RoleLowering::initialise() {
  int64_t warpgroup = 128, chainWarps = 4 * chainWarpgroups();
  auto loaded = [&](int64_t i) { return barrierAt(0, b.i32(i), rowStages()); };
  auto prepared = [&](int64_t i) {
    return barrierAt(rowStages(), b.i32(i), imageStages());
  };
  // By a warp that has less to do before the roles begin than the first.
  int64_t last = 32 * at.schedule.getWarps() - 32;
  branch(b.equal(at.thread, b.i32(last)), [&] {
    for (int64_t i = imageStages(); i < rowStages(); ++i)
      b.initBarrier(loaded(i), b.i32(warpgroup));
    for (int64_t i = 0; i < imageStages(); ++i) {
      b.initBarrier(loaded(i), b.i32(warpgroup));
      Value preparers = b.i32(prepares() ? 2 : 1);
      if (shares())
        preparers = select(isOwn(b.i32(i)), preparers, b.i32(1));
      b.initBarrier(prepared(i), preparers);
      if (shares())
        b.initBarrier(awaitedImage(b.i32(i)), b.i32(clusterBlocks() - 1));
      if (isAssisted()) {
        b.initBarrier(awaitedImage(b.i32(i)), b.i32(1));
        b.initBarrier(takenImage(b.i32(i)), b.i32(2));
      }
    }
    for (int64_t i = 0; i < valueStages(); ++i) {
      b.initBarrier(loadedValue(b.i32(i)), b.i32(warpgroup));
      b.initBarrier(madeOutput(b.i32(i)),
                    b.i32(std::max<int64_t>(1, chainWarps)));
    }
    if (stagesState()) {
      b.initBarrier(loadedState(), b.i32(warpgroup));
      b.initBarrier(leftState(), b.i32(chainWarps));
    }
    b.publishBarriers();
  });
  if (prepares())
    zeroAboveDiagonal(0);
  b.proxyFence();
}

/// Where ptxas else keeps a neighbour through the role, and spills it: beside
/// assistants in a chain without an erase, otherwise in transfer.
bool RoleLowering::loadsApart(unsigned role) const {
  return isAssisted() ? role == 0 && !parts.inverse : role == 2;
}

void RoleLowering::dispatch() {
  int64_t chains = chainWarpgroups();
  Value group = b.div(at.thread, 128);
  locateInGroup();
  IRMapping before = at.scalars;
  auto role = [&](unsigned number, llvm::function_ref<void()> body) {
    auto budget = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.registers");
    b.setRegisters(budget[number], budget[3]);
    at.scalars = before;
    readScalars(loadsApart(number));
    body();
  };
  int64_t preparers = tile::preparePairs(at.schedule) / 2;
  auto others = [&] { role(2, [&] { transfer(); }); };
  auto preparing = [&] {
    if (preparers == 0)
      return others();
    branch(
        b.less(group, b.i32(chains + preparers)),
        [&] {
          role(1, [&] {
            lowerPreparersOwn();
            prepare();
          });
        },
        others);
  };
  if (chains == 0)
    return preparing();
  auto all = [&] {
    branch(
        b.less(group, b.i32(chains)), [&] { role(0, [&] { chain(); }); },
        preparing);
  };
  if (!isAssisted())
    return all();
  branch(
      isAssistant(),
      [&] {
        assist();
        at.scalars = before;
      },
      all);
}

LogicalResult RoleLowering::run() {
  if (failed(match()))
    return failure();
  at.createKernel();
  b.mergeFactors();
  findPreparersOwn();
  initialise();
  if (failed(lowerPrologue()))
    return failure();
  clusterBlocks() > 1 ? b.clusterBarrier() : at.synchronise();
  dispatch();
  // A block stays while others may reach into its memory.
  if (clusterBlocks() > 1)
    b.clusterBarrier();
  LLVM::ReturnOp::create(b, ValueRange());
  return success();
}

} // namespace kdac
