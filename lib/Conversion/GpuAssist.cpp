// Programs with an assistant: clusters of three blocks with a program each and
// a fourth that only prepares, every third chunk of each of them.
//
// A program has five buffers of the ring for chunks of its own and one for what
// the assistant made. The assistant has a pair of warps for every buffer of its
// ring, two for each program. It loads and prepares on its own account; when
// the program has a place the pair writes the image there, which frees its own
// buffer at once.
//
//   who                            when                         does
//   a program's transfer warps     its last buffer is free      ask: awaited
//   the assistant's transfer warps a buffer is taken            load its rows
//   a pair of the assistant        both halves made, awaited    write; prepared
//                                                               there; taken
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

static constexpr int64_t kWarpgroup = 128, kPairThreads = 64;
/// Bytes that a pair writes in one turn.
static constexpr int64_t kTurnBytes = kPairThreads * 16;
/// Loads of a thread before its first store.
static constexpr int64_t kTogether = 4;

//===-- Whose chunk, and where
//---------------------------------------------===//

/// The last block of a cluster.
Value RoleLowering::isAssistant() {
  return b.equal(rank(), b.i32(tile::kAssistedPrograms));
}

Value RoleLowering::isLent(Value number) {
  constexpr int64_t period = tile::kAssistedPeriod;
  return b.equal(b.rem(b.add(number, 3 * period), period), b.i32(period - 1));
}

/// How many chunks of its own a program has before `number`.
Value RoleLowering::ownNumber(Value number) {
  return arith::SubIOp::create(b, number, b.div(number, tile::kAssistedPeriod));
}

/// The first chunk of the program's pair `pair`: own chunk `pair`.
Value RoleLowering::firstOwn(Value pair) {
  return b.add(pair, b.div(pair, tile::kAssistedPeriod - 1));
}

//===-- Copies of what programs do not share
//-------------------------------===//

Value RoleLowering::copyBytes(Value copy) {
  auto each = at.kernel->getAttrOfType<IntegerAttr>("tile.scalar_bytes");
  return b.mul(copy, each.getInt());
}

/// In the prologue each of an assistant's first warpgroups makes what a program
/// needs, in a program the first makes its own and the second, without an
/// assistant, what is known of the follower. The others join in, so that
/// barriers are everyone's, but keep nothing.
void RoleLowering::shareOutThreads() {
  threadGroup = b.div(at.thread, kWarpgroup);
  at.thread = b.rem(at.thread, kWarpgroup);
  Value last = b.i32(tile::programCopies(at.schedule) - 1);
  copy = select(b.less(threadGroup, last), threadGroup, last);
  if (isAssisted())
    copy = select(isAssistant(), copy, b.i32(0));
  makesCopy = b.equal(threadGroup, copy);
}

/// The program that a copy is of, index.
Value RoleLowering::programOfCopy() {
  if (!isAssisted())
    return arith::IndexCastUIOp::create(
        b, b.getIndexType(),
        select(b.equal(copy, b.i32(0)), at.block, follower()));
  Value first =
      b.mul(b.div(at.block, clusterBlocks()), tile::kAssistedPrograms);
  Value number = b.add(first, select(isAssistant(), copy, rank()));
  return arith::IndexCastUIOp::create(b, b.getIndexType(), number);
}

/// Of the whole kernel; a vector goes to where its copy is, of a follower to
/// nowhere.
LogicalResult RoleLowering::lowerCopied(Operation *op) {
  auto load = dyn_cast<tile::LoadOp>(op);
  if (!copy || !load)
    return at.lowerOp(op);
  LogicalResult result = success();
  if (!isAssisted()) {
    branch(b.equal(threadGroup, b.i32(0)), [&] { result = at.lowerOp(op); });
    return result;
  }
  at.slots[load.getResult()] = vectorCopy(load, copy);
  branch(makesCopy, [&] { result = at.lowerOp(op); });
  at.slots.erase(load.getResult());
  return result;
}

/// Bytes from a vector of the whole kernel to its copy.
Value RoleLowering::vectorCopy(tile::LoadOp load, Value copy) {
  return b.mul(copy, load.getResult().getType().getDimSize(0) * 4);
}

/// From here on scalars and vectors are those of `copy`, if any.
void RoleLowering::useCopy(std::function<Value()> copy) {
  readCopy = std::move(copy);
  readScalars();
}

//===-- In a program
//-------------------------------------------------------===//

/// Once chunk `number` is done, or before the first: loads the rows of the own
/// chunk that takes its buffer, the fifth after it, or asks for the next one of
/// the assistant. `now` are the rows of chunk `number` + kNearOwn.
void RoleLowering::fillOrAsk(Value number, ArrayRef<Value> now) {
  constexpr int64_t period = tile::kAssistedPeriod;
  auto isInside = [&](Value next) -> Value {
    return arith::AndIOp::create(
        b, arith::CmpIOp::create(b, arith::CmpIPredicate::sge, next, b.i32(0)),
        b.less(next, chunks));
  };
  Value inPeriod = b.rem(b.add(number, 3 * period), period);
  auto ask = [&] {
    Value next = b.add(number, period);
    branch(isInside(next), [&] { askAssistant(next); });
  };
  auto fill = [&] {
    // Five own chunks on are seven or eight chunks.
    Value next = b.add(b.add(number, kNearOwn), inPeriod);
    branch(isInside(next), [&] {
      for (auto [load, address] : llvm::zip(imageRows, now)) {
        Value chunk = b.mul64(rowBytes(load), b.i64(chunkRows()));
        Value isSecond = b.equal(inPeriod, b.i32(1));
        startRows(load, next,
                  b.add(address, select(isSecond, chunk, b.i64(0))));
      }
      b.arriveAfterCopies(loadedImage(next));
    });
  };
  branch(b.equal(inPeriod, b.i32(period - 1)), ask, fill);
}

/// The buffer of an assistant's ring that has chunk `number` of program
/// `program`.
static Value placeAtAssistant(GpuEmitter &b, Value number, Value program) {
  Value turn = b.bitAnd(b.div(number, tile::kAssistedPeriod), 1);
  return b.add(b.mul(turn, tile::kAssistedPrograms), program);
}

void RoleLowering::askAssistant(Value number) {
  branch(b.equal(threadInGroup, b.i32(0)), [&] {
    Value place = placeAtAssistant(b, number, rank());
    b.arriveInCluster(
        b.inBlock(awaitedImage(place), b.i32(tile::kAssistedPrograms)));
  });
}

//===-- In an assistant
//----------------------------------------------------===//

/// The mbarrier that says that the image of a buffer has been written to its
/// program.
Value RoleLowering::takenImage(Value place) {
  return barrierAt(rowStages() + 2 * imageStages() + 2 * valueStages(), place,
                   imageStages());
}

/// Loads the rows of what the programs lend, in turn.
void RoleLowering::transferForPrograms() {
  constexpr int64_t programs = tile::kAssistedPrograms;
  constexpr int64_t period = tile::kAssistedPeriod;
  Value most = b.i32(0);
  for (int64_t program = 0; program < programs; ++program) {
    useCopy([&] { return b.i32(program); });
    Value turns = b.div(chunks, period);
    most = select(b.less(most, turns), turns, most);
  }
  Values none;
  loop(b.i32(0), b.mul(most, programs), 1, none, [&](Value unit, Values &) {
    Value program = b.rem(unit, programs);
    useCopy([&] { return program; });
    Value number = b.add(b.mul(b.div(unit, programs), period), period - 1);
    assistedPlace = b.rem(unit, imageStages());
    branch(b.less(number, chunks), [&] {
      Value before = b.add(b.div(unit, imageStages()), -1);
      branch(b.less(b.i32(-1), before), [&] {
        b.waitBarrier(takenImage(assistedPlace), b.bitAnd(before, 1));
      });
      for (tile::LoadOp load : imageRows)
        startRows(load, number, pieceAddress(load, load.getResult(), number));
      b.arriveAfterCopies(loadedImage(number));
      at.scalars = roleScalars;
    });
  });
}

/// The first chunk that the assistant's pair `pair` prepares.
Value RoleLowering::firstLent(Value pair) {
  Value turn = b.div(pair, tile::kAssistedPrograms);
  return b.add(b.mul(turn, tile::kAssistedPeriod), tile::kAssistedPeriod - 1);
}

/// A pair has a buffer and a program of its own.
void RoleLowering::enterPair(Value pair) {
  assistedPlace = pair;
  for (auto load : at.kernel.getOps<tile::LoadOp>())
    if (load.getResult().getType().getRank() == 1)
      at.slots[load.getResult()] =
          vectorCopy(load, b.rem(pair, tile::kAssistedPrograms));
}

/// By a pair that has both halves of an image: writes it to its program.
void RoleLowering::handOver(Value number, Value pair) {
  auto image = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image");
  int64_t bytes = imageSize(), last = imageStages() - 1;
  Value program = b.rem(pair, tile::kAssistedPrograms);
  Value offset = b.mul(b.rem(at.thread, kPairThreads), 16);
  b.waitBarrier(awaitedImage(pair), imageParity(number), /*cluster=*/true);
  Value from = b.add(offset, b.mul(pair, image[2]));
  Value to = b.inBlock(b.address(pointer(offset, image[0] + last * image[2])),
                       program);
  auto words = VectorType::get({4}, b.getI32Type());
  auto copy = [&](Value bytes, int64_t turns) {
    Values loaded;
    for (int64_t i = 0; i < turns; ++i)
      loaded.push_back(LLVM::LoadOp::create(
          b, words, pointer(b.add(from, bytes), image[0] + i * kTurnBytes),
          16));
    for (int64_t i = 0; i < turns; ++i)
      b.storeInCluster(loaded[i], b.add(to, bytes), i * kTurnBytes);
  };
  int64_t whole = bytes / kTurnBytes, rest = whole % kTogether;
  Values none;
  loop(b.i32(0), b.i32((whole - rest) * kTurnBytes), kTogether * kTurnBytes,
       none, [&](Value done, Values &) { copy(done, kTogether); });
  copy(b.i32((whole - rest) * kTurnBytes), rest);
  branch(b.less(offset, b.i32(bytes % kTurnBytes)),
         [&] { copy(b.i32(whole * kTurnBytes), 1); });
  // All is read, and the buffer free, before all has been written.
  b.warpSync();
  Value isFirst = b.equal(at.lane, b.i32(0));
  branch(isFirst, [&] { b.arrive(takenImage(pair)); });
  b.clusterProxyFence();
  b.warpSync();
  branch(isFirst, [&] {
    Value prepared = barrierAt(rowStages(), b.i32(last), imageStages());
    b.arriveInCluster(b.inBlock(prepared, program));
  });
  b.warpSync();
}

/// The roles of a block that has no program. No role gives up registers: what
/// all have at launch is enough.
void RoleLowering::assist() {
  IRMapping before = at.scalars;
  auto slots = at.slots;
  Value group = b.div(at.thread, kWarpgroup);
  int64_t preparers = tile::assistantPairs(at.schedule) / 2;
  branch(
      b.less(group, b.i32(preparers)), [&] { prepareForPrograms(); },
      [&] {
        at.scalars = before;
        branch(b.equal(group, b.i32(preparers)),
               [&] { transferForPrograms(); });
      });
  readCopy = nullptr;
  assistedPlace = {};
  at.slots = slots;
}

} // namespace kdac
