// The kernels beside the chunk form's: convolutions of q, k and v into the
// workspace before it, the gated norm of the output after it. Their programs
// take tiles of token rows in any order.
#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// Programs that fill any GPU several times over; of a longer sequence each
/// takes several tiles.
static constexpr int64_t kRowPrograms = 4096;

/// Of their kernel on an SM at least, of 8 warps: enough loads in flight.
static constexpr int64_t kRowBlocks = 4;

/// Elements that parts of a row of the workspace are padded to: 16 bytes or
/// more.
static constexpr int64_t kPad = 8;

//===-- The frame ---------------------------------------------------------===//

KernelBuilder::RowProgram
KernelBuilder::locateRows(Value blocks, const std::string &expression,
                          bool inTurns) {
  int64_t rows = schedule.getChunk();
  std::string many = "max(1, N * " + expression + ")";
  std::string turnsText = " * max(1, min(ceildiv(T, " + std::to_string(rows) +
                          "), ceildiv(" + std::to_string(kRowPrograms) + ", " +
                          many + ")))";
  function->setAttr("kdac.grid", b.getStringAttr("N * " + expression +
                                                 (inTurns ? turnsText : "")));
  function->setAttr(tile::kBesideAttr, b.getUnitAttr());
  function->setAttr("kdac.min_blocks", b.getI64IntegerAttr(kRowBlocks));
  Value programs = b.maxI(b.index(1), b.mulI(arg("N"), blocks));
  Value share = b.divI(
      b.addI(b.subI(programs, b.index(1)), b.index(kRowPrograms)), programs);
  RowProgram program;
  program.turns =
      inTurns ? b.maxI(b.index(1), b.minI(b.ceilDiv(arg("T"), rows), share))
              : b.index(1);
  // Neighbours have neighbouring columns of the same rows.
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  program.block = b.remI(id, blocks);
  Value rest = b.divI(id, blocks);
  program.turn = b.remI(rest, program.turns);
  sequence = b.divI(rest, program.turns);
  locateSequence();
  locateSlots();
  if (isOwned) // nothing of a skipped sequence is read
    length = b.select(isOwned, length, b.index(0));
  return program;
}

/// Calls `body` with the first row and the number of rows, of `count`, of each
/// of the program's tiles.
static void forTiles(KernelBuilder &kernel, KernelBuilder::RowProgram program,
                     Value count,
                     llvm::function_ref<void(Value first, Value valid)> body) {
  TileBuilder &b = kernel.b;
  int64_t rows = kernel.schedule.getChunk();
  Value tiles = b.ceilDiv(b.maxI(count, b.index(0)), rows);
  b.forEach(program.turn, tiles, program.turns, [&](Value tile) {
    Value first = b.mulI(tile, b.index(rows));
    body(first, b.minI(b.index(rows), b.subI(count, first)));
  });
}

//===-- The workspace -----------------------------------------------------===//

std::string KernelBuilder::convolvedBytes() const {
  int64_t pad = kPad * tile::bytesOf(problem.dtype());
  auto padded = [](std::string elements) {
    return "ceildiv(" + elements + ", " + std::to_string(kPad) + ")";
  };
  return "tokens * (2 * " + padded("H * K") + " + " + padded("HV * V") +
         ") * " + std::to_string(pad);
}

KernelBuilder::ConvolvedRows KernelBuilder::convolvedRows(Value after) {
  auto padded = [&](StringRef heads, int64_t width) {
    Value channels = b.mulI(arg(heads), b.index(width));
    return b.mulI(b.ceilDiv(channels, kPad), b.index(kPad));
  };
  Value keys = padded("H", problem.keyDim());
  Value values = padded("HV", problem.valueDim());
  ConvolvedRows rows;
  rows.after = after;
  rows.ref = tile::ViewOp::create(
      b, tile::RefType::get(b.getContext(), problem.dtype()), arg("workspace"),
      0, after);
  rows.start["q"] = b.index(0);
  rows.start["k"] = keys;
  rows.start["v"] = b.addI(keys, keys);
  rows.stride = b.addI(rows.start["v"], values);
  return rows;
}

/// The chunk form finds its rows where the convolution left them.
void KernelBuilder::readConvolved() {
  if (!problem.q.conv)
    return;
  ConvolvedRows rows = convolvedRows();
  for (StringRef name : {"q", "k", "v"}) {
    args[name] = rows.ref;
    args[(name + "_stride").str()] = rows.stride;
    starts[name] = rows.start[name];
  }
  int64_t bytes = tile::bytesOf(problem.dtype());
  imagesAfter = b.mulI(b.mulI(tokenLimit, rows.stride), b.index(bytes));
  function->setAttr("kdac.workspace", b.getStringAttr(convolvedBytes()));
}

//===-- Convolution -------------------------------------------------------===//

namespace {

/// One program: a block of channels of q, k or v, of one sequence.
class Convolution {
public:
  explicit Convolution(KernelBuilder &kernel)
      : kernel(kernel), b(kernel.b), width(kernel.schedule.getVTile()) {}
  void build();

private:
  void locate();
  void convolveTile(Value first, Value valid);
  void convolveFirstTokens(const KernelBuilder::Channels &c, Value count);
  /// Sum over taps, in one order and with one rounding a tap wherever it is
  /// made, then SiLU.
  Value activated(ArrayRef<Value> inputs);
  Type element() { return kernel.problem.dtype(); }

  KernelBuilder &kernel;
  TileBuilder &b;
  int64_t width;
  KernelBuilder::RowProgram program;
  KernelBuilder::ConvolvedRows rows;
  KernelBuilder::Channels channels;
  SmallVector<Value> weights; ///< [width] of every tap
  Value start;                ///< of the channels in a row of the workspace
  int64_t align = 0;          ///< bytes of the first channel's address
};

} // namespace

/// Channels of q, k and v are numbered one after the other in blocks.
void Convolution::locate() {
  const Problem &problem = kernel.problem;
  int64_t key = problem.keyDim(), value = problem.valueDim();
  Value keys = b.mulI(kernel.arg("H"), b.index(key));
  Value values = b.mulI(kernel.arg("HV"), b.index(value));
  Value keyBlocks = b.ceilDiv(keys, width);
  Value blocks = b.addI(b.addI(keyBlocks, keyBlocks), b.ceilDiv(values, width));
  std::string by = ", " + std::to_string(width) + ")";
  program = kernel.locateRows(blocks, "(2 * ceildiv(H * K" + by +
                                          " + ceildiv(HV * V" + by + ")");
  rows = kernel.convolvedRows();
  auto atLeast = [&](Value bound) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::uge, program.block,
                                 bound);
  };
  Value isKey = atLeast(keyBlocks);
  Value isValue = atLeast(b.addI(keyBlocks, keyBlocks));
  auto of = [&](const char *suffix) -> Value {
    auto named = [&](const char *name) {
      return kernel.arg((name + StringRef(suffix)).str());
    };
    if (!isa<tile::RefType>(named("q").getType()))
      return b.select(isValue, named("v"),
                      b.select(isKey, named("k"), named("q")));
    Type type = named("q").getType();
    Value keyOrQuery =
        tile::ChooseOp::create(b, type, named("k"), isKey, named("q"));
    return tile::ChooseOp::create(b, type, named("v"), isValue, keyOrQuery);
  };
  KernelBuilder::Channels &c = channels;
  c.tokens = of("");
  c.stride = of("_stride");
  c.weight = of("_conv");
  c.cache = of("_cache");
  c.pitch = of("_cache_pitch");
  dplr::ShortConvOp conv = problem.q.conv;
  c.isFull = conv.getLayout() == dplr::CacheLayout::Full;
  c.taps = cast<RankedTensorType>(conv.getWeight().getType()).getDimSize(2);
  c.tileWidth = width;
  c.all = b.select(isValue, values, keys);
  Value before = b.select(isValue, b.addI(keyBlocks, keyBlocks),
                          b.select(isKey, keyBlocks, b.index(0)));
  c.first = b.mulI(b.subI(program.block, before), b.index(width));
  c.count = b.minI(b.index(width), b.subI(c.all, c.first));
  start = b.addI(b.select(isValue, rows.start["v"],
                          b.select(isKey, rows.start["k"], rows.start["q"])),
                 c.first);
  int64_t bytes = tile::bytesOf(element());
  align = std::min<int64_t>(
      {16, (key * bytes) & -(key * bytes), (value * bytes) & -(value * bytes)});
}

Value Convolution::activated(ArrayRef<Value> inputs) {
  Value sum;
  for (auto [x, weight] : llvm::zip_equal(inputs, weights)) {
    bool isVector = x.getType() == weight.getType();
    Value w = isVector ? weight : b.colFactor(weight, x);
    sum = sum ? b.fma(x, w, sum) : b.mul(x, w);
  }
  return b.mul(sum, b.sigmoid(sum));
}

/// Rows whose inputs are all of this sequence: from token taps - 1 on.
void Convolution::convolveTile(Value first, Value valid) {
  const KernelBuilder::Channels &c = channels;
  int64_t count = kernel.schedule.getChunk();
  int64_t before = c.taps - 1;
  Value token = b.addI(kernel.begin, first);
  Value all = b.toF32(tile::LoadOp::create(
      b, b.tileType({count + before, width}, element()), c.tokens,
      b.addI(b.mulI(token, c.stride), c.first), c.stride,
      ValueRange{b.addI(valid, b.index(before)), c.count}, align, false));
  SmallVector<Value> inputs;
  for (int64_t tap = 0; tap < c.taps; ++tap)
    inputs.push_back(b.window(all, tap, count));
  Value out = b.round(activated(inputs), element());
  Value at = b.addI(b.mulI(b.addI(token, b.index(before)), rows.stride), start);
  tile::StoreOp::create(b, out, rows.ref, at, rows.stride,
                        ValueRange{valid, c.count}, align, false);
}

/// The first tokens of the sequence, which see its cache.
void Convolution::convolveFirstTokens(const KernelBuilder::Channels &c,
                                      Value count) {
  b.forEach(b.index(0), count, b.index(1), [&](Value local) {
    SmallVector<Value> inputs;
    for (int64_t tap = 0; tap < c.taps; ++tap) {
      Value position = b.subI(local, b.index(c.taps - 1 - tap));
      inputs.push_back(
          kernel.inputAt(c, position, b.addI(position, b.index(c.entries()))));
    }
    Value out = b.round(b.once(activated(inputs)), element());
    Value token = b.addI(kernel.begin, local);
    tile::StoreOp::create(b, out, rows.ref,
                          b.addI(b.mulI(token, rows.stride), start), b.index(1),
                          ValueRange{c.count}, align, false);
  });
}

void Convolution::build() {
  locate();
  int64_t taps = channels.taps;
  Value seen = b.index(taps - 1);
  for (int64_t tap = 0; tap < taps; ++tap)
    weights.push_back(b.once(kernel.weightOf(channels, tap)));
  // One program reads a channel's cache and changes it: the first turn's.
  Value isFirst = b.isEqual(program.turn, b.index(0));
  KernelBuilder::Channels c = channels;
  for (Value *ref : {&c.tokens, &c.cache})
    *ref = b.guarded(*ref, isFirst);
  SmallVector<Value> kept = kernel.loadCaches(c);
  Value few = b.minI(kernel.length, seen);
  convolveFirstTokens(c, b.select(isFirst, few, b.index(0)));
  kernel.storeCaches(c, kept);
  forTiles(kernel, program, b.subI(kernel.length, seen),
           [&](Value first, Value valid) { convolveTile(first, valid); });
  kernel.finish();
}

void buildConvolution(KernelBuilder &kernel) { Convolution(kernel).build(); }

//===-- Norm --------------------------------------------------------------===//

/// In place, a head at a time.
void buildOutputNorm(KernelBuilder &kernel) {
  TileBuilder &b = kernel.b;
  KernelBuilder::RowProgram program = kernel.locateRows(kernel.arg("HV"), "HV");
  kernel.valueHead = program.block;
  kernel.firstColumn = b.index(0);
  kernel.columns = b.index(kernel.problem.valueDim());
  int64_t rows = kernel.schedule.getChunk();
  Value weight = b.once(kernel.loadNormWeight());
  forTiles(kernel, program, kernel.length, [&](Value first, Value valid) {
    Value token = b.addI(kernel.begin, first);
    Value out = b.toF32(kernel.loadValueRows(token, rows, valid, "out"));
    Value gate = b.toF32(kernel.loadValueRows(token, rows, valid, "z"));
    Value inverse = kernel.inverseMean(b.sum(b.mul(out, out), 1));
    Value scaled =
        b.mul(b.mul(out, b.rowFactor(inverse, out)), b.colFactor(weight, out));
    kernel.storeOut(b.mul(scaled, kernel.openGate(gate)), token, valid);
  });
  kernel.finish();
}

} // namespace kdac
