// The prepare role: pairs of warps, each pair one chunk of two blocks of 16
// rows, a warp a block. Everything up to the diagonal blocks stays in registers
// as fragments of mma.sync; the pair meets twice.
//
// With L the log-decay from before the block's first row, r the decay up to the
// block and R the decay of the whole chunk, block I makes
//     k 2^L, q 2^L  (times 2^r in a second pass: the keys and queries)
//     k 2^(tot-L)   (times 2^(R-r-tot) in a second pass: the remaining keys)
// and its diagonal products from k 2^L, q 2^L and k 2^-L, whose exponents are
// at most 16 bounds. The lower block is the second block's k 2^L, q 2^L times
// the first one's k 2^(tot-L). Every factor of the latter is at most 1.
#include "GpuPrepare.h"

using namespace mlir;

namespace kdac {

static constexpr int64_t kPairThreads = 64;

//===-- Where things are
//---------------------------------------------------===//

void ChunkPreparer::locate() {
  Value warp = b.div(at.thread, 32);
  if (!assists)
    warp = b.add(warp, -4 * roles.chainWarpgroups());
  pair = b.div(warp, 2);
  // The first block's warp works longer after the meeting: the pairs' are
  // spread over the four schedulers.
  block = b.bitXor(b.rem(warp, 2), b.bitAnd(b.div(warp, 4), 1));
  quad = b.div(at.lane, 4);
  inQuad = b.rem(at.lane, 4);
  Value in8 = b.rem(at.lane, 8);
  Value half = b.rem(b.div(at.lane, 8), 2), unit = b.div(at.lane, 16);
  tileRow = b.add(b.add(b.mul(half, 1024), b.mul(in8, 128)),
                  b.shiftLeft(b.bitXor(unit, in8), 4));
  ownRows = b.add(tileRow, b.mul(block, 2048));
  scratch = scratchOf(pair);
  if (assists)
    roles.enterPair(pair);
  placeHead();
  firstRow = b.add(b.mul(block, 16), quad);
  firstToken = b.add(b.mul(block, 16), b.mul(inQuad, 2));
}

/// Of a pair, bytes. An assistant's have room in the ring of v.
Value ChunkPreparer::scratchOf(Value pair) const {
  auto space = at.kernel->getAttrOfType<DenseI64ArrayAttr>("tile.scratch");
  Value usual = b.add(b.mul(pair, space[1]), space[0]);
  if (!assists)
    return usual;
  int64_t pairs = tile::preparePairs(at.schedule);
  int64_t ring = at.place(roles.values.getResult()).getOffset();
  Value further = b.add(b.mul(pair, space[1]), ring - pairs * space[1]);
  return roles.select(b.less(pair, b.i32(pairs)), usual, further);
}

/// Coordinates must be the same values wherever a slice's elements are named.
void ChunkPreparer::enterSlice(Value slice) {
  own = sliceAt(slice, ownRows);
  pairColumn = b.add(b.mul(slice, 16), b.mul(inQuad, 2));
  tokenColumn = b.add(b.mul(slice, 16), quad);
}

/// Fragment register `part`: rows quad (+ 8 for odd parts), a pair of columns
/// (+ 8 for parts 2 and 3).
Group ChunkPreparer::rowPairs(int64_t part) const {
  Group group;
  group.row = {firstRow, part % 2 * 8};
  group.col = {pairColumn, part / 2 * 8};
  group.width = 2;
  return group;
}

/// The same registers of a tile read transposed: pairs of rows of one column.
Group ChunkPreparer::tokenPairs(int64_t part) const {
  Group group;
  group.row = {firstToken, part % 2 * 8};
  group.col = {tokenColumn, part / 2 * 8};
  group.width = 2;
  group.along = 0;
  return group;
}

/// Bytes from a tile's panels to this lane's ldmatrix row of `slice`; `rows`
/// are tileRow, or ownRows of this warp's block. All [C, K] tiles are alike.
Value ChunkPreparer::sliceAt(Value slice, Value rows) const {
  Value offset = b.bitXor(rows, b.shiftLeft(b.bitAnd(slice, 3), 5));
  int64_t pitch = at.place(parts.queries).getPitch();
  offset = b.add(offset, b.mul(b.shiftRight(slice, 2), pitch));
  return b.add(buffer, offset);
}

Value ChunkPreparer::scratchAt(int64_t offset, Value bytes,
                               int64_t constant) const {
  Value from = bytes ? b.add(scratch, bytes) : scratch;
  return roles.pointer(from, offset + constant);
}

ChunkPreparer::Values ChunkPreparer::fragment(Value tile, Value offset,
                                              bool transposed, int64_t rows) {
  int64_t constant = at.place(tile).getOffset() + rows * 128;
  return b.ldmatrix(roles.pointer(offset, constant), 4, transposed);
}

void ChunkPreparer::putFragment(Value tile, Value offset, ValueRange words,
                                int64_t rows) {
  b.stmatrix(roles.pointer(offset), words, false,
             at.place(tile).getOffset() + rows * 128);
}

/// Lanes 0-15 point to the columns 0-7 of the present slice, or to 8-15: the
/// swizzle is an exclusive or.
Value ChunkPreparer::ownHalf(int64_t half) const {
  return half ? b.bitXor(own, b.i32(16)) : own;
}

/// The loaded rows that `expression` is computed from, element by element.
SmallVector<Value> ChunkPreparer::rowsBehind(Value expression) const {
  SmallVector<Value> pending = {expression}, rows;
  llvm::DenseSet<Value> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *source = value.getDefiningOp();
    if (!source || !seen.insert(value).second ||
        isa<tile::ReduceOp, tile::CumsumOp>(source))
      continue;
    if (llvm::is_contained(roles.imageRows, source))
      rows.push_back(value);
    else
      llvm::append_range(pending, source->getOperands());
  }
  return rows;
}

/// Makes the loaded rows that `expression` is computed from known to
/// evaluate(): all columns of the slice, or its half 0 or 1.
void ChunkPreparer::readLoads(Value expression, bool tokens,
                              std::optional<int64_t> half) {
  for (Value value : rowsBehind(expression)) {
    Type element = getElementTypeOrSelf(value.getType());
    int64_t first = half ? 2 * *half : 0;
    Values words = half ? b.ldmatrix(roles.pointer(ownHalf(*half),
                                                   at.place(value).getOffset()),
                                     2, tokens)
                        : fragment(value, own, tokens);
    for (auto [i, word] : llvm::enumerate(words)) {
      int64_t part = first + i;
      at.remember(
          value, tokens ? tokenPairs(part) : rowPairs(part),
          {b.unpack16(word, false, element), b.unpack16(word, true, element)});
    }
  }
}

void ChunkPreparer::multiply(MutableArrayRef<Value> sums, ValueRange a,
                             Value b0, Value b1, Type element) {
  b.mma(sums, a, {b0, b1}, element);
}

/// One a lane: lane % 16 is the row.
Group ChunkPreparer::rowOfLane() const {
  Group group;
  group.col = {b.add(b.mul(block, 16), b.rem(at.lane, 16)), 0};
  return group;
}

/// What tokens have one of, such as write strengths, comes a chunk ahead and as
/// it is in memory, as a number made of it here would be waited for; logits of
/// 32 bits come as far as the L2.
ChunkPreparer::Values ChunkPreparer::vectorsOf(Value number) {
  Values loaded;
  for (tile::LoadOp load : parts.vectorLoads) {
    roles.enterChunk(number, load.getOperation());
    loaded.push_back(at.loadBits(load, rowOfLane()));
  }
  // Beside assistants and without an erase ptxas has no register for it.
  if (parts.wideLogits && (hasSystem() || !roles.isAssisted()))
    askForLogits(number);
  loadHead(number, loaded);
  return loaded;
}

/// The f32 elements of what vectorsOf has loaded.
ChunkPreparer::Values ChunkPreparer::elementsOf(ArrayRef<Value> bits) {
  Values elements;
  for (auto [load, x] : llvm::zip(parts.vectorLoads, bits)) {
    Type element = getElementTypeOrSelf(load.getResult().getType());
    if (bytesOf(element) == 2)
      elements.push_back(b.unpack16(
          arith::ExtUIOp::create(b, b.getI32Type(), x), false, element));
    else
      elements.push_back(arith::BitcastOp::create(b, b.getF32Type(), x));
  }
  return elements;
}

/// This lane's element of `expression`, which is computed from `vectors`: a
/// vector of the image, perhaps, that is not there yet.
Value ChunkPreparer::evaluateRow(Value expression, ArrayRef<Value> vectors) {
  Group row = rowOfLane();
  for (auto [load, loaded] : llvm::zip(parts.vectorLoads, vectors)) {
    at.remember(load.getResult(), row, {loaded});
    if (load.getResult() == expression)
      return loaded;
  }
  return at.evaluateOp(expression.getDefiningOp(), row)[0];
}

/// Of a vector of the image.
Value ChunkPreparer::vectorAt(Value vector, Value bytes) const {
  return roles.pointer(b.add(buffer, bytes), at.place(vector).getOffset());
}

/// The write strengths are part of the image where the chain needs them.
Value ChunkPreparer::strengthsAt(Value bytes, int64_t constant) const {
  if (roles.isRefined())
    return vectorAt(parts.strengths, b.add(bytes, constant));
  return scratchAt(layout.strengths, bytes, constant);
}

//===-- After the pair has met
//---------------------------------------------===//

/// Of an even entry of the block's totals (storeTotals).
Value ChunkPreparer::columnOfTotal(Value entry) const {
  Value slice = b.div(entry, 16), lane = b.rem(b.div(entry, 4), 4);
  Value half = b.rem(b.div(entry, 2), 2);
  return b.add(b.mul(slice, 16), b.add(b.mul(lane, 2), b.mul(half, 8)));
}

/// The factors of the second pass: 2^tot of the other block, as pairs of bf16
/// in the order of the totals; the first warp also makes the decay of the whole
/// chunk, by columns.
void ChunkPreparer::tables(bool first) {
  if (!parts.decay)
    return;
  if (!hasChannels())
    return rowTotals(first);
  int64_t each = roles.keyDim() / 32;
  Value entry = b.mul(at.lane, each);
  auto totals = [&](int64_t block) {
    Value pointer =
        scratchAt(layout.totals, b.mul(entry, 4), block * roles.keyDim() * 4);
    return b.load(pointer, b.getF32Type(), each, 4 * each);
  };
  Values own = totals(first ? 1 : 0), factors;
  for (Value total : own)
    factors.push_back(b.exp2(total));
  b.store(factors, scratchAt(first ? layout.down : layout.up, b.mul(entry, 2)),
          bf16(), 2 * each);
  if (first) {
    Values other = totals(0), decay;
    for (auto [x, y] : llvm::zip(own, other))
      decay.push_back(b.exp2(b.addF(x, y)));
    tile::PlaceAttr place = at.place(parts.total);
    for (int64_t i = 0; i < each; i += 2) {
      Value column = columnOfTotal(i ? b.add(entry, i) : entry);
      b.store(ArrayRef<Value>(decay).slice(i, 2),
              roles.pointer(b.add(buffer, b.mul(column, 4)), place.getOffset()),
              b.getF32Type(), 8);
    }
  }
  b.warpSync();
}

/// Of a table, for the columns of this lane's fragments: those of parts 0 and
/// 1, and of 2 and 3.
ChunkPreparer::Values ChunkPreparer::factorsAt(int64_t table, Value slice) {
  Value bytes = b.add(b.mul(slice, 32), b.mul(inQuad, 8));
  Values pairs;
  for (Value pair : b.load(scratchAt(table, bytes), b.getF32Type(), 2, 8))
    pairs.push_back(LLVM::BitcastOp::create(b, b.getI32Type(), pair));
  return pairs;
}

/// The write strength of row `first` + quad.
Value ChunkPreparer::rowStrength(int64_t first) const {
  return b.load(strengthsAt(b.mul(quad, 4), 4 * first), b.getF32Type(), 1,
                4)[0];
}

/// The first block's remaining keys, times the decay of the second.
void ChunkPreparer::scaleRemaining() {
  Values none;
  roles.loop(b.i32(0), b.i32(slices), 1, none, [&](Value slice, Values &) {
    Value first = sliceAt(slice, tileRow);
    Values words = fragment(parts.remaining, first, false);
    Values factors = hasChannels() ? factorsAt(layout.down, slice) : Values();
    for (int64_t part = 0; part < 4; ++part)
      words[part] = hasChannels()
                        ? b.mulPairs(words[part], factors[part / 2], bf16())
                        : timesOther(words[part]);
    putFragment(parts.remaining, first, words);
  });
}

/// The second block's keys and queries: their products with the first block,
/// then times the decay of the first. Returns the system's lower block.
ChunkPreparer::Values ChunkPreparer::scaleLower() {
  Values sums(16, b.f32(0)); // keys, then queries: columns 0-7 and 8-15
  roles.loop(b.i32(0), b.i32(slices), 1, sums, [&](Value slice, Values &sums) {
    Value first = sliceAt(slice, tileRow);
    Values keys;
    if (parts.inverse)
      keys = fragment(parts.keys, first, false, 16);
    Values queries = fragment(parts.queries, first, false, 16);
    Values right =
        fragment(parts.decay ? parts.remaining : parts.keys, first, false);
    auto all = MutableArrayRef<Value>(sums);
    if (parts.inverse) {
      multiply(all.slice(0, 4), keys, right[0], right[2], bf16());
      multiply(all.slice(4, 4), keys, right[1], right[3], bf16());
    }
    multiply(all.slice(8, 4), queries, right[0], right[2], bf16());
    multiply(all.slice(12, 4), queries, right[1], right[3], bf16());
    if (!parts.decay)
      return;
    Values factors = hasChannels() ? factorsAt(layout.up, slice) : Values();
    for (int64_t part = 0; part < 4; ++part) {
      auto scaled = [&](Value words) {
        return hasChannels() ? b.mulPairs(words, factors[part / 2], bf16())
                             : timesOther(words);
      };
      if (parts.inverse)
        keys[part] = scaled(keys[part]);
      queries[part] = scaled(queries[part]);
    }
    if (parts.inverse)
      putFragment(parts.keys, first, keys, 16);
    putFragment(parts.queries, first, queries, 16);
  });
  tile::PlaceAttr place = at.place(parts.attention);
  int64_t panel = place.getOffset() & ~int64_t(1023);
  Value offset =
      b.add(buffer, b.bitXor(tileRow, b.i32(place.getOffset() - panel)));
  auto pairOf = [&](int64_t i) { return word(sums[i], sums[i + 1], bf16()); };
  b.stmatrix(roles.pointer(offset),
             {pairOf(8), pairOf(10), pairOf(12), pairOf(14)}, false,
             panel + 2048);
  if (!parts.inverse)
    return {};
  return lowerSystem(ArrayRef(sums).take_front(8));
}

/// The pair's warps wait for each other. Without a bound, which pair it is
/// would take a register on the way there.
void ChunkPreparer::meet() {
  Value which = pair;
  if (!isBounded()) {
    Value warp = b.div(b.opaqueThread(at.thread), 32);
    which =
        b.div(assists ? warp : b.add(warp, -4 * roles.chainWarpgroups()), 2);
  }
  b.namedBarrier(b.add(which, 1), kPairThreads);
}

void ChunkPreparer::firstBlock() {
  tables(true);
  if (parts.inverse)
    invertDiagonal();
  meet();
  if (parts.decay)
    scaleRemaining();
}

void ChunkPreparer::secondBlock() {
  tables(false);
  Values lower = scaleLower();
  meet();
  if (parts.inverse)
    lowerInverse(lower);
}

//===-- The role
//-----------------------------------------------------------===//

/// What is needed after the slices waits in shared memory where these, and what
/// comes before them, need its registers. The strength came long ago.
void ChunkPreparer::park(Value number, ArrayRef<Value> vectors) {
  Value row = b.mul(b.add(b.mul(block, 16), b.rem(at.lane, 16)), 4);
  if (!vectors.empty())
    b.store(vectors, scratchAt(layout.waiting, row), b.getF32Type(), 4);
  LLVM::StoreOp::create(b, number,
                        scratchAt(layout.waitingNumber, b.mul(block, 4)), 4);
}

void ChunkPreparer::unpark(Value &number, Values &vectors) {
  b.memoryFence();
  Value row = b.mul(b.add(b.mul(block, 16), b.rem(at.lane, 16)), 4);
  if (!vectors.empty())
    vectors = b.load(scratchAt(layout.waiting, row), b.getF32Type(), 1, 4);
  number = loadWord(scratchAt(layout.waitingNumber, b.mul(block, 4)));
}

/// The products of the block's own rows, of all slices.
ChunkPreparer::Values ChunkPreparer::diagonal() {
  Values sums(kDiagonalSums, b.f32(0));
  int64_t each = 1;
  if (readsDecaysAhead()) {
    sums.append(storedDecays(b.i32(0)));
    each = 2;
  }
  roles.loop(b.i32(0), b.i32(slices), each, sums,
             [&](Value index, Values &sums) {
               // Places are then made of it rather than counted along with it.
               if (scalesRows() && isBounded())
                 index = b.opaqueWord(index);
               if (!isBounded())
                 unboundedSlice(index, sums);
               else if (!hasChannels())
                 rowSlice(index, sums);
               else
                 for (int64_t i = 0; i < each; ++i)
                   boundedSlice(i ? b.add(index, i) : index, sums);
             });
  sums.resize(kDiagonalSums);
  if (!isBounded() || readsDecaysAhead()) {
    // Where things are is computed anew rather than kept around the slices.
    at.locateThread(b.opaqueThread(at.thread));
    locate();
  }
  if (!isBounded())
    lowerSums(sums);
  if (parts.decay && !hasChannels())
    decayDiagonal(sums);
  if (scalesRows())
    unscaleSums(sums);
  return sums;
}

/// `bits` are of this chunk's vectors, and then of the next one's, of this
/// lane.
void ChunkPreparer::chunk(Value &number, Values &bits) {
  Values vectors = elementsOf(bits);
  enterHead(ArrayRef(bits).drop_front(vectors.size()));
  if (!isBounded() && !parts.norms.empty())
    park(number, vectors);
  if (parts.wideLogits)
    storeDecays();
  sumNorms();
  if (scalesRows())
    findScales();
  if (parts.decay && !hasChannels())
    sumTokens(evaluateRow(parts.decay.getInput(), vectors));
  if (!isBounded() && parts.norms.empty())
    park(number, vectors);
  Values sums = diagonal();
  if (!isBounded())
    unpark(number, vectors);
  storeDiagonal(sums, parts.inverse ? evaluateRow(parts.strengths, vectors)
                                    : Value());
  roles.readScalars();
  bits = vectorsOf(b.add(number, tile::prepareTurn(at.schedule)));
  meet();
  Value isFirst = b.equal(block, b.i32(0));
  roles.branch(isFirst, [&] { firstBlock(); }, [&] { secondBlock(); });
  if (assists) {
    meet();
    return roles.handOver(number, pair);
  }
  b.proxyFence();
  b.warpSync();
  roles.branch(b.equal(at.lane, b.i32(0)),
               [&] { b.arrive(roles.preparedImage(number)); });
  // By the warp that works longer and so has the least to wait for.
  if (roles.shares()) {
    roles.branch(arith::AndIOp::create(b, isFirst, b.equal(at.lane, b.i32(0))),
                 [&] { roles.sendImage(number); });
    b.warpSync(); // or the warp stays apart, and what follows needs all of it
  }
}

/// Of this pair.
Value ChunkPreparer::firstChunk() {
  if (assists)
    return roles.firstLent(pair);
  if (roles.isAssisted())
    return roles.firstOwn(pair);
  return roles.shares()
             ? b.add(b.mul(pair, roles.clusterBlocks()), roles.rank())
             : pair;
}

void ChunkPreparer::run() {
  locate();
  // What prepare evaluates: all that is not moved by the transfer role.
  SmallVector<Operation *> tiles;
  if (parts.wideLogits)
    tiles.push_back(parts.wideLogits);
  for (Operation &op : roles.chunkLoop.getBody()->without_terminator())
    if (op.hasAttr(tile::kRoleAttr) && !isa<tile::LoadOp, tile::StoreOp>(op))
      tiles.push_back(&op);
  Value first = firstChunk();
  Values carried = vectorsOf(first);
  roles.chunkLoopOf(first, tile::prepareTurn(at.schedule), isBounded(), carried,
                    [&](Value &number, Values &carried) {
                      locate();
                      buffer = roles.bufferOf(parts.queries, number);
                      roles.enterChunk(number, tiles);
                      b.waitBarrier(roles.loadedImage(number),
                                    roles.rowParity(number));
                      chunk(number, carried);
                    });
}

void RoleLowering::prepare() { ChunkPreparer(*this).run(); }

void RoleLowering::prepareForPrograms() {
  useCopy([this] {
    return b.rem(b.div(at.thread, kPairThreads), tile::kAssistedPrograms);
  });
  ChunkPreparer(*this, /*assists=*/true).run();
}

} // namespace kdac
