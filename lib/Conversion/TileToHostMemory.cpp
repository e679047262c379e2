// Scratch buffers and kernel arguments: vector loads and stores, masks at the
// edges of the valid part, conversion between memory and f32 registers.
#include "TileToHostEmitter.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace kdac::tile;

namespace kdac::host {

static int64_t lanesOf(Value x) {
  auto vector = dyn_cast<VectorType>(x.getType());
  return vector ? vector.getNumElements() : 0;
}

/// How an element lies in memory: bf16 as its bits, tf32 as f32.
static Type memoryType(Type element) {
  Builder b(element.getContext());
  if (element.isBF16())
    return b.getI16Type();
  return isa<FloatTF32Type>(element) ? b.getF32Type() : element;
}

static unsigned bytesOf(Type element) {
  return (memoryType(element).getIntOrFloatBitWidth() + 7) / 8;
}

//===-- Scratch -----------------------------------------------------------===//

Matrix Emitter::matrix(const Buffer &buffer) {
  Value base = LLVM::GEPOp::create(
      b, loc, scratch.getType(), b.getI8Type(), scratch,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(buffer.offset)});
  return {base, buffer.pitch, false};
}

Value Emitter::at(const Matrix &m, Value row, Value col) {
  if (m.transposed)
    std::swap(row, col);
  Value offset = col;
  if (row)
    offset = add(mul(row, m.pitch), col);
  return LLVM::GEPOp::create(b, loc, m.base.getType(), b.getF32Type(), m.base,
                             ArrayRef<LLVM::GEPArg>{offset});
}

Value Emitter::loadF32(Value address, int64_t lanes) {
  return LLVM::LoadOp::create(b, loc, vectorOf(b.getF32Type(), lanes), address,
                              /*alignment=*/4);
}

void Emitter::storeF32(Value value, Value address) {
  LLVM::StoreOp::create(b, loc, value, address, /*alignment=*/4);
}

Value Emitter::loadBuffer(const Buffer &buffer, Point p) {
  Value col = p.col ? p.col : index(0);
  return loadF32(at(matrix(buffer), p.row, col), p.lanes);
}

void Emitter::storeBuffer(Value value, const Buffer &buffer, Point p) {
  Value col = p.col ? p.col : index(0);
  storeF32(value, at(matrix(buffer), p.row, col));
}

//===-- Elements of kernel arguments --------------------------------------===//

/// Widens bits as loaded to f32: exact for every supported type.
Value Emitter::fromMemory(Value raw, Type element) {
  int64_t lanes = lanesOf(raw);
  if (element.isF16())
    return arith::ExtFOp::create(b, loc, vectorOf(b.getF32Type(), lanes), raw);
  if (!element.isBF16())
    return raw;
  Value wide =
      arith::ExtUIOp::create(b, loc, vectorOf(b.getI32Type(), lanes), raw);
  return asFloat(arith::ShLIOp::create(b, loc, wide, likeBits(wide, 16)));
}

/// Narrows an f32 that is already a value of `element`.
Value Emitter::toMemory(Value value, Type element) {
  int64_t lanes = lanesOf(value);
  if (element.isF16())
    return arith::TruncFOp::create(b, loc, vectorOf(element, lanes), value);
  if (!element.isBF16())
    return value;
  Value high = arith::ShRUIOp::create(b, loc, bits(value), likeBits(value, 16));
  return arith::TruncIOp::create(b, loc, vectorOf(b.getI16Type(), lanes), high);
}

/// Lanes whose number is below `limit`.
Value Emitter::maskBelow(Value limit, int64_t lanes) {
  Value most = arith::MinSIOp::create(b, loc, limit, index(lanes));
  Value narrow = arith::TruncIOp::create(b, loc, b.getI32Type(), most);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                               iota(lanes, 32), splat(narrow, lanes));
}

/// The first `limit` of `lanes` elements, zeros after them. Full vectors take
/// the branch without a mask, which is what keeps targets without cheap masked
/// loads (AVX2) fast.
Value Emitter::loadMasked(Value address, Type element, Value limit,
                          int64_t lanes) {
  Type type = vectorOf(memoryType(element), lanes);
  Value full = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, limit,
                                     index(lanes));
  auto branch = scf::IfOp::create(b, loc, TypeRange{type}, full,
                                  /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value raw = LLVM::LoadOp::create(b, loc, type, address, bytesOf(element));
    scf::YieldOp::create(b, loc, raw);
    b.setInsertionPointToStart(branch.elseBlock());
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    raw = LLVM::MaskedLoadOp::create(
        b, loc, type, address, maskBelow(limit, lanes), zero, bytesOf(element));
    scf::YieldOp::create(b, loc, raw);
  }
  return fromMemory(branch.getResult(0), element);
}

void Emitter::storeMasked(Value value, Value address, Type element,
                          Value limit) {
  int64_t lanes = lanesOf(value);
  Value raw = toMemory(value, element);
  Value full = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, limit,
                                     index(lanes));
  auto branch = scf::IfOp::create(b, loc, full, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  LLVM::StoreOp::create(b, loc, raw, address, bytesOf(element));
  b.setInsertionPointToStart(branch.elseBlock());
  LLVM::MaskedStoreOp::create(b, loc, raw, address, maskBelow(limit, lanes),
                              bytesOf(element));
}

Value Emitter::loadRaw(Value address, Type element) {
  return LLVM::LoadOp::create(b, loc, memoryType(element), address,
                              bytesOf(element));
}

/// One element, or zero where `inside` does not hold.
Value Emitter::loadElement(Value address, Type element, Value inside) {
  auto branch = scf::IfOp::create(b, loc, TypeRange{b.getF32Type()}, inside,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, fromMemory(loadRaw(address, element), element));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, f32(0.0));
  return branch.getResult(0);
}

Value Emitter::element(Value ref, Type type, Value offset) {
  return LLVM::GEPOp::create(b, loc, ref.getType(), memoryType(type), ref,
                             ArrayRef<LLVM::GEPArg>{offset});
}

Value Emitter::isPresent(Value ref) {
  Value null = LLVM::ZeroOp::create(b, loc, ref.getType());
  return LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, ref, null);
}

//===-- Loading ahead -----------------------------------------------------===//

/// Collects into `slice`, in order, the scalar ops of the loop body that
/// `value` depends on; false when it depends on more than the induction
/// variable.
static bool collectSlice(Value value, scf::ForOp loop,
                         llvm::SetVector<Operation *> &slice) {
  if (value == loop.getInductionVar())
    return true;
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != loop.getBody())
    return !llvm::is_contained(loop.getRegionIterArgs(), value);
  if (!isa<arith::ArithDialect>(op->getDialect()) || tileType(value) ||
      !llvm::all_of(op->getOperands(), [&](Value operand) {
        return collectSlice(operand, loop, slice);
      }))
    return false;
  slice.insert(op);
  return true;
}

/// Prepares prefetches of what `load` will read in the next iteration of its
/// loop: lines lie a token apart, too far for the CPU to load ahead by itself.
void Emitter::lookAhead(LoadOp load) {
  auto loop = dyn_cast<scf::ForOp>(load->getParentOp());
  llvm::SetVector<Operation *> slice;
  if (!loop || !collectSlice(load.getBase(), loop, slice) || slice.empty())
    return;
  IRMapping present = scalars;
  Value base = scalars.lookup(load.getBase());
  Value iv = loop.getInductionVar();
  scalars.map(iv, add(scalars.lookup(iv), scalars.lookup(loop.getStep())));
  for (Operation *op : slice)
    emitScalar(op);
  Value next = scalars.lookup(load.getBase());
  scalars = present;
  ahead[load] = arith::SubIOp::create(b, loc, next, base);
}

//===-- tile.load ---------------------------------------------------------===//

/// The row of memory that row `row` of a tile is, which the load finds through
/// its order if `isValid` holds.
Value Emitter::pickedRow(LoadOp load, Value row, Value isValid) {
  Value order = scalars.lookup(load.getOrder());
  Value entry = add(scalars.lookup(load.getFirst()), row);
  Value isGiven = isPresent(order);
  auto given = scf::IfOp::create(
      b, loc, TypeRange{entry.getType()},
      arith::AndIOp::create(b, loc, isGiven, isValid), /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(given.thenBlock());
    Value raw = loadRaw(element(order, b.getI32Type(), entry), b.getI32Type());
    Value found = arith::ExtSIOp::create(b, loc, entry.getType(), raw);
    Value picked =
        arith::DivSIOp::create(b, loc, found, scalars.lookup(load.getEach()));
    scf::YieldOp::create(b, loc, picked);
    b.setInsertionPointToStart(given.elseBlock());
    scf::YieldOp::create(b, loc, entry);
  }
  Value last = add(scalars.lookup(load.getCount()), index(-1));
  Value most = arith::MinSIOp::create(b, loc, given.getResult(0), last);
  return arith::MaxSIOp::create(b, loc, most, index(0));
}

/// An untransposed rank-2 load at `p`: elements past the valid part, in rows
/// past it, or of an absent argument are zero and never touched.
Value Emitter::evalLoad(LoadOp load, Point p) {
  Type type = load.getType().getElementType();
  Value ref = scalars.lookup(load.getRef());
  Value rows = scalars.lookup(load.getValid()[0]);
  Value cols = scalars.lookup(load.getValid()[1]);
  Value stride = scalars.lookup(load.getStride());
  Value inRow =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, p.row, rows);
  Value row = load.getOrder() ? pickedRow(load, p.row, inRow) : p.row;
  Value line = arith::MulIOp::create(b, loc, row, stride);
  Value start = add(scalars.lookup(load.getBase()), add(line, p.col));
  Value inside = arith::AndIOp::create(b, loc, inRow, isPresent(ref));
  Value rest = arith::SubIOp::create(b, loc, cols, p.col);
  Value limit = arith::SelectOp::create(b, loc, inside, rest, index(0));
  Value address = element(ref, type, start);
  if (Value distance = ahead.lookup(load))
    prefetch(element(ref, type, add(start, distance)), /*forWrite=*/false);
  if (p.lanes)
    return loadMasked(address, type, limit, p.lanes);
  Value some =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, limit, index(0));
  return loadElement(address, type, some);
}

/// Vectors up to this length are loaded in a loop of known length, masks and
/// all. A longer one may mostly lie past the valid part, where a masked load is
/// slow if its page was never touched.
static constexpr int64_t kShortVector = 256;

/// A rank-1 load: vectors where elements are adjacent, else one by one.
void Emitter::emitVectorLoad(LoadOp load) {
  Type type = load.getType().getElementType();
  int64_t size = load.getType().getDimSize(0);
  const Buffer &to = *plan.buffer(load.getResult());
  Value ref = scalars.lookup(load.getRef());
  Value base = scalars.lookup(load.getBase());
  Value stride = scalars.lookup(load.getStride());
  Value valid = arith::SelectOp::create(
      b, loc, isPresent(ref), scalars.lookup(load.getValid()[0]), index(0));
  Value adjacent =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stride, index(1));
  auto branch = scf::IfOp::create(b, loc, adjacent, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  int64_t lanes = lanesFor(size, width);
  auto loadLanes = [&](Value i) {
    Value limit = arith::SubIOp::create(b, loc, valid, i);
    Value address = element(ref, type, add(base, i));
    storeBuffer(loadMasked(address, type, limit, lanes), to, {{}, i, lanes});
  };
  if (size <= kShortVector) {
    loop(0, size, lanes, loadLanes);
  } else {
    Value most = arith::MaxSIOp::create(
        b, loc, index(0), arith::MinSIOp::create(b, loc, valid, index(size)));
    Value vectors = arith::CeilDivSIOp::create(b, loc, most, index(lanes));
    Value end = mul(vectors, lanes);
    loop(index(0), end, lanes, loadLanes);
    loop(end, index(size), lanes,
         [&](Value i) { storeBuffer(zeros(lanes), to, {{}, i, lanes}); });
  }
  b.setInsertionPointToStart(branch.elseBlock());
  loop(0, size, 1, [&](Value i) {
    Value inside =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, i, valid);
    Value offset = arith::MulIOp::create(b, loc, i, stride);
    Value address = element(ref, type, add(base, offset));
    storeBuffer(loadElement(address, type, inside), to, {{}, i, 0});
  });
}

/// Asks for the cache line at `address`, which may lie outside the argument.
void Emitter::prefetch(Value address, bool forWrite) {
  constexpr int32_t kAllLevels = 3, kData = 1;
  LLVM::Prefetch::create(b, loc, address, b.getI32IntegerAttr(forWrite),
                         b.getI32IntegerAttr(kAllLevels),
                         b.getI32IntegerAttr(kData));
}

/// Column `col` of a transposed access, a line of memory, from `row` on.
template <typename Access>
Emitter::Line Emitter::transposedLine(Access op, Value row, Value col) {
  Type type = op.getRef().getType().getElementType();
  Value stride = scalars.lookup(op.getStride());
  Value line = arith::MulIOp::create(b, loc, col, stride);
  Value start = add(scalars.lookup(op.getBase()), add(line, row));
  Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, col,
                                       scalars.lookup(op.getValid()[1]));
  Value ref = scalars.lookup(op.getRef());
  inside = arith::AndIOp::create(b, loc, inside, isPresent(ref));
  Value rest =
      arith::SubIOp::create(b, loc, scalars.lookup(op.getValid()[0]), row);
  return {element(ref, type, start),
          arith::SelectOp::create(b, loc, inside, rest, index(0))};
}

/// Calls `body` for every square of n x n elements of a transposed access,
/// with the lines of the squares after the next few asked for: n lines far
/// apart are more streams than a CPU recognises by itself.
template <typename Access>
void Emitter::forEachSquare(
    Access op, RankedTensorType type, bool forWrite,
    llvm::function_ref<void(Value, Value, int64_t)> body) {
  ArrayRef<int64_t> shape = type.getShape();
  int64_t n = std::min(lanesFor(shape[0], width), lanesFor(shape[1], width));
  loop(0, shape[1], n, [&](Value col) {
    loop(0, shape[0], n, [&](Value row) {
      for (int64_t t = 0; t < n; ++t)
        prefetch(transposedLine(op, row, add(col, n + t)).address, forWrite);
      body(row, col, n);
    });
  });
}

/// Squares of the tile: memory lines are columns, transposed in registers.
void Emitter::emitTransposedLoad(LoadOp load) {
  Type type = load.getType().getElementType();
  const Buffer &to = *plan.buffer(load.getResult());
  auto square = [&](Value row, Value col, int64_t n) {
    Values lines;
    for (int64_t t = 0; t < n; ++t) {
      Line line = transposedLine(load, row, add(col, t));
      lines.push_back(loadMasked(line.address, type, line.limit, n));
    }
    for (auto [t, value] : llvm::enumerate(transposeSquare(lines)))
      storeBuffer(value, to, {add(row, t), col, n});
  };
  forEachSquare(load, load.getType(), /*forWrite=*/false, square);
}

//===-- tile.store --------------------------------------------------------===//

void Emitter::emitStore(StoreOp store) {
  auto branch = scf::IfOp::create(
      b, loc, isPresent(scalars.lookup(store.getRef())), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  if (store.getTransposed())
    emitTransposedStore(store);
  else
    emitStoreBody(store);
}

void Emitter::emitStoreBody(StoreOp store) {
  auto tile = cast<RankedTensorType>(store.getValue().getType());
  Type type = tile.getElementType();
  bool isMatrix = tile.getRank() == 2;
  Value ref = scalars.lookup(store.getRef());
  Value base = scalars.lookup(store.getBase());
  Value stride = scalars.lookup(store.getStride());
  int64_t size = tile.getShape().back();
  Value valid = arith::MinSIOp::create(
      b, loc, scalars.lookup(store.getValid().back()), index(size));
  int64_t lanes = lanesFor(size, width);
  if (!isMatrix)
    return emitVectorStore(store, valid, lanes);
  Value rows = arith::MinSIOp::create(
      b, loc, scalars.lookup(store.getValid()[0]), index(tile.getDimSize(0)));
  loop(index(0), rows, 1, [&](Value row) {
    cacheRowFactors(store.getValue(), row, lanes);
    Value line = add(base, arith::MulIOp::create(b, loc, row, stride));
    loop(index(0), valid, lanes, [&](Value col) {
      Value value = eval(store.getValue(), {row, col, lanes});
      Value limit = arith::SubIOp::create(b, loc, valid, col);
      storeMasked(value, element(ref, type, add(line, col)), type, limit);
    });
    cache.clear();
  });
}

/// A rank-1 store: vectors where elements are adjacent, else one by one.
void Emitter::emitVectorStore(StoreOp store, Value valid, int64_t lanes) {
  Type type = tileType(store.getValue()).getElementType();
  Value ref = scalars.lookup(store.getRef());
  Value base = scalars.lookup(store.getBase());
  Value stride = scalars.lookup(store.getStride());
  Value adjacent =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stride, index(1));
  auto branch = scf::IfOp::create(b, loc, adjacent, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  loop(index(0), valid, lanes, [&](Value i) {
    Value value = eval(store.getValue(), {{}, i, lanes});
    Value limit = arith::SubIOp::create(b, loc, valid, i);
    storeMasked(value, element(ref, type, add(base, i)), type, limit);
  });
  b.setInsertionPointToStart(branch.elseBlock());
  loop(index(0), valid, 1, [&](Value i) {
    Value offset = arith::MulIOp::create(b, loc, i, stride);
    Value value = toMemory(eval(store.getValue(), {{}, i, 0}), type);
    LLVM::StoreOp::create(b, loc, value, element(ref, type, add(base, offset)),
                          bytesOf(type));
  });
}

void Emitter::emitTransposedStore(StoreOp store) {
  RankedTensorType tile = tileType(store.getValue());
  auto square = [&](Value row, Value col, int64_t n) {
    Values lines;
    for (int64_t t = 0; t < n; ++t)
      lines.push_back(eval(store.getValue(), {add(row, t), col, n}));
    for (auto [t, value] : llvm::enumerate(transposeSquare(lines))) {
      Line line = transposedLine(store, row, add(col, t));
      storeMasked(value, line.address, tile.getElementType(), line.limit);
    }
  };
  forEachSquare(store, tile, /*forWrite=*/true, square);
}

} // namespace kdac::host
