// The transfer role: one warpgroup that copies the rows of q, k, g and v into
// the rings and the output's rows out of them, 16 bytes a thread and turn.
//
// Thread addresses repeat from turn to turn: a thread writes v only where it
// has itself read the output before, so that the two need no barrier.
#include "GpuRoles.h"

using namespace mlir;

namespace kdac {

constexpr int64_t kTransferThreads = 128;

/// 16 bytes of a tile in panels.
struct RoleLowering::Piece {
  Group group;  ///< its 8 elements
  Value offset; ///< bytes from the tile's place
};

int64_t RoleLowering::passes(Value tile) const {
  auto type = cast<RankedTensorType>(tile.getType());
  return type.getNumElements() / 8 / kTransferThreads;
}

RoleLowering::Piece RoleLowering::pieceOf(Value tile, int64_t pass) const {
  auto type = cast<RankedTensorType>(tile.getType());
  int64_t units = type.getDimSize(1) / 8;
  int64_t rowsAtOnce = kTransferThreads / units; // a multiple of 8
  Value unit = b.rem(threadInGroup, units), row = b.div(threadInGroup, units);
  Piece piece;
  piece.group.row = {row, pass * rowsAtOnce};
  piece.group.col = {b.mul(unit, 8), 0};
  piece.group.width = 8;
  Value swizzled = b.bitXor(b.rem(unit, 8), b.rem(row, 8));
  piece.offset = b.add(b.mul(row, 128), b.shiftLeft(swizzled, 4));
  if (units > 8)
    piece.offset =
        b.add(piece.offset, b.mul(b.div(unit, 8), at.place(tile).getPitch()));
  piece.offset = b.add(piece.offset, pass * rowsAtOnce * 128);
  return piece;
}

/// The address of this thread's first piece in chunk `number`, i64.
Value RoleLowering::pieceAddress(Operation *op, Value tile, Value number) {
  enterChunk(number, op);
  Group group = pieceOf(tile, 0).group;
  Value pointer = isa<tile::LoadOp>(op)
                      ? at.globalPointer(cast<tile::LoadOp>(op), group)
                      : at.globalPointer(cast<tile::StoreOp>(op), group);
  at.scalars = roleScalars;
  return LLVM::PtrToIntOp::create(b, b.getI64Type(), pointer);
}

/// The same for a number that may be negative: then it is only counted up from.
Value RoleLowering::firstPiece(Operation *op, Value tile, int64_t number) {
  Value address = pieceAddress(op, tile, b.i32(0));
  return b.add(address, b.mul64(rowBytes(op), b.i64(number * chunkRows())));
}

/// Bytes from one row in global memory to the next, i64.
Value RoleLowering::rowBytes(Operation *op) {
  auto load = dyn_cast<tile::LoadOp>(op);
  Value stride = load ? load.getStride() : cast<tile::StoreOp>(op).getStride();
  Value size = roleScalars.lookup(stride);
  // One in shared memory is read again rather than kept through the loop.
  forScalars([&](Value scalar, Value pointer, int64_t align) {
    if (scalar != stride)
      return;
    b.memoryFence();
    size = LLVM::LoadOp::create(b, b.getI64Type(), pointer, align);
  });
  return b.mul64(b.opaqueSize(b.toI64(size)), b.i64(2));
}

/// Of what is absent no row is valid: one bound for all pieces rather than two
/// conditions a piece. Returns what is left to ask of a piece.
Value RoleLowering::limitRows(Value ref, ValueRange valid) {
  Value isPresent = at.presence(ref);
  if (isAssisted()) // ptxas would spill a pointer of the chain for it
    return isPresent;
  Value rows = at.scalars.lookup(valid[0]);
  Value none = arith::ConstantIndexOp::create(b, 0);
  at.scalars.map(valid[0], select(isPresent, rows, none));
  return arith::ConstantIntOp::create(b, 1, /*width=*/1);
}

/// Copies the rows of chunk `number`; those past the sequence become zero.
void RoleLowering::startRows(tile::LoadOp load, Value number, Value address) {
  enterChunk(number, load.getOperation());
  Value tile = load.getResult();
  Value buffer = bufferOf(tile, number);
  Value step = b.mul64(rowBytes(load), b.i64(chunkRows() / passes(tile)));
  auto global = LLVM::LLVMPointerType::get(b.getContext(), 1);
  Value condition = limitRows(load.getRef(), load.getValid());
  for (int64_t pass = 0; pass < passes(tile); ++pass) {
    Piece piece = pieceOf(tile, pass);
    Value valid = at.inside(condition, load.getValid(),
                            load.getResult().getType().getShape(), piece.group);
    NVVM::CpAsyncOp::create(
        b, pointer(b.add(buffer, piece.offset), at.place(tile).getOffset()),
        LLVM::IntToPtrOp::create(b, global, address), 16,
        NVVM::LoadCacheModifierKind::CG, select(valid, b.i32(16), b.i32(0)));
    address = b.add(address, step);
  }
}

void RoleLowering::storeOutput(Value number, Value address) {
  enterChunk(number, output.getOperation());
  Value tile = output.getValue();
  Value buffer = bufferOf(tile, number);
  Value step = b.mul64(rowBytes(output), b.i64(chunkRows() / passes(tile)));
  Value condition = limitRows(output.getRef(), output.getValid());
  auto words = VectorType::get({4}, b.getI32Type());
  auto global = LLVM::LLVMPointerType::get(b.getContext(), 1);
  for (int64_t pass = 0; pass < passes(tile); ++pass) {
    Piece piece = pieceOf(tile, pass);
    Value from =
        pointer(b.add(buffer, piece.offset), at.place(tile).getOffset());
    Value loaded = LLVM::LoadOp::create(b, words, from, 16);
    Value valid = at.inside(condition, output.getValid(),
                            cast<RankedTensorType>(tile.getType()).getShape(),
                            piece.group);
    branch(valid, [&] {
      LLVM::StoreOp::create(b, loaded,
                            LLVM::IntToPtrOp::create(b, global, address), 16);
    });
    address = b.add(address, step);
  }
}

//===-- Whole images
//-------------------------------------------------------===//

int64_t RoleLowering::imageSize() const {
  return at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image")[1];
}

/// Where the image of chunk `number` is in the workspace, i64.
Value RoleLowering::workspaceImage(Value number) {
  enterChunk(number, cut.getOperation());
  Value image = b.toI64(at.scalars.lookup(cut.getImage()));
  Value offset = b.mul64(image, b.i64(imageSize()));
  if (cut.getAfter())
    offset = b.add(offset, b.toI64(at.scalars.lookup(cut.getAfter())));
  at.scalars = roleScalars;
  Value workspace;
  for (BlockArgument argument : at.kernel.getArguments())
    if (auto ref = dyn_cast<tile::RefType>(argument.getType());
        ref && ref.getElementType().isInteger(8))
      workspace = roleScalars.lookup(argument);
  return b.add(LLVM::PtrToIntOp::create(b, b.getI64Type(), workspace), offset);
}

/// Its address in the ring, i32.
Value RoleLowering::imageBuffer(Value number) {
  auto image = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image");
  return b.address(
      pointer(b.mul(b.rem(number, imageStages()), image[2]), image[0]));
}

/// All of it, or without the queries where there is no output.
void RoleLowering::startImage(Value number) {
  Value from = workspaceImage(number);
  tile::PlaceAttr place = at.place(parts.queries);
  int64_t first = place.getOffset() -
                  at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image")[0];
  int64_t end = first + keyDim() / 64 * place.getPitch();
  if (hasOutput())
    first = end = 0;
  branch(b.equal(threadInGroup, b.i32(0)), [&] {
    b.arriveExpecting(preparedImage(number), imageSize() - (end - first));
    for (auto [begin, size] :
         {std::pair(int64_t(0), first), std::pair(end, imageSize() - end)})
      if (size > 0)
        b.bulkLoad(b.add(imageBuffer(number), begin), b.add64(from, begin),
                   size, preparedImage(number));
  });
}

void RoleLowering::storeImage(Value number) {
  Value to = workspaceImage(number);
  branch(b.equal(threadInGroup, b.i32(0)), [&] {
    b.bulkStore(to, imageBuffer(number), imageSize());
    b.waitBulkStores(0, /*read=*/true);
  });
}

/// Where nothing but images is made: rows come in, images go out. A buffer is
/// filled again as soon as its image has been read.
void RoleLowering::transferImagesOut() {
  int64_t ahead = imageStages();
  SmallVector<Operation *> loads(imageRows.begin(), imageRows.end());
  Value barrier = b.i32(tile::preparePairs(at.schedule) + 1);
  Values none;
  loop(b.i32(-ahead), chunks, 1, none, [&](Value number, Values &) {
    Value isMade =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number, b.i32(0));
    branch(isMade, [&] {
      b.waitBarrier(preparedImage(number), parityOf(number, imageStages()));
      storeImage(number);
      b.namedBarrier(barrier, kTransferThreads);
    });
    Value next = b.add(number, ahead);
    branch(b.less(next, chunks), [&] {
      // Of any head: nothing to count up from.
      enterChunk(next, loads);
      Values addresses;
      for (tile::LoadOp load : imageRows) {
        Group group = pieceOf(load.getResult(), 0).group;
        addresses.push_back(LLVM::PtrToIntOp::create(
            b, b.getI64Type(), at.globalPointer(load, group)));
      }
      for (auto [load, address] : llvm::zip(imageRows, addresses))
        startRows(load, next, address);
      b.arriveAfterCopies(loadedImage(next));
    });
    at.scalars = roleScalars;
  });
  b.waitBulkStores(0, /*read=*/false);
}

/// One loop fills and drains both rings: `ahead` turns before chunk 0 it begins
/// to load. Addresses are counted up, which takes fewer registers than making
/// them from sizes.
void RoleLowering::transfer() {
  if (chainWarpgroups() == 0)
    return transferImagesOut();
  if (!prepares())
    imageRows.clear(); // images come whole
  int64_t ahead = imageStages(), valuesAhead = valueStages(), start = ahead;
  if (isAssisted())
    std::tie(ahead, start) = std::pair(kNearOwn, kFarOwn);
  SmallVector<Operation *> moved;
  Values addresses;
  for (tile::LoadOp load : imageRows) {
    moved.push_back(load);
    addresses.push_back(firstPiece(load, load.getResult(), ahead - start));
  }
  moved.push_back(values);
  addresses.push_back(
      firstPiece(values, values.getResult(), valuesAhead - start));
  if (hasOutput()) {
    moved.push_back(output);
    addresses.push_back(firstPiece(output, output.getValue(), -start));
  }
  size_t images = imageRows.size();
  loop(b.i32(-start), chunks, 1, addresses, [&](Value number, Values &now) {
    Value zero = b.i32(0);
    Value isMade =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number, zero);
    branch(isMade, [&] {
      b.waitBarrier(madeOutput(number), parityOf(number, valuesAhead));
    });
    Value next = b.add(number, ahead);
    if (isAssisted())
      fillOrAsk(number, ArrayRef(now).take_front(images));
    else
      branch(b.less(next, chunks), [&] {
        if (!prepares())
          return startImage(next);
        auto load = [&] {
          for (auto [i, load] : llvm::enumerate(imageRows))
            startRows(load, next, now[i]);
          b.arriveAfterCopies(loadedImage(next));
        };
        if (!shares())
          return load();
        auto own = [&] {
          awaitImage(next);
          load();
        };
        branch(isOwn(next), own, [&] { requestImage(next); });
      });
    if (hasOutput())
      branch(isMade, [&] { storeOutput(number, now[images + 1]); });
    // Its bytes are those of the buffers that are filled from here on.
    if (stagesState())
      branch(b.equal(number, b.i32(-valuesAhead)),
             [&] { anew(/*apart=*/true, [&] { startState(); }); });
    Value later = b.add(number, valuesAhead);
    Value inRange = arith::AndIOp::create(
        b, arith::CmpIOp::create(b, arith::CmpIPredicate::sge, later, zero),
        b.less(later, chunks));
    branch(inRange, [&] {
      startRows(values, later, now[images]);
      b.arriveAfterCopies(loadedValue(later));
    });
    if (hasFollower())
      askForFollower(number);
    at.scalars = roleScalars;
    for (auto [op, address] : llvm::zip(moved, now))
      address = b.add(address, b.mul64(rowBytes(op), b.i64(chunkRows())));
  });
}

} // namespace kdac
