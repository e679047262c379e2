// The kernels that move caches beside a step. Behind one whose value heads
// share key heads: the programs of a key head's value heads all read its
// caches, so none of them may change them. Beside a commit: what it accepts is
// known only then.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

/// The channels of q, then those of k, and with a log those of v, are numbered
/// one after the other in blocks.
static KernelBuilder::Channels blockChannels(KernelBuilder &kernel) {
  TileBuilder &b = kernel.b;
  bool isLogged = kernel.keepsLog();
  int64_t width = kernel.schedule.getVTile();
  std::string columns = ", " + std::to_string(width) + ")";
  std::string grid = "2 * ceildiv(H * K" + columns;
  grid = isLogged
             ? "((" + grid + " + ceildiv(HV * V" + columns + ") * committed)"
             : "(" + grid + " * less(H, HV))";
  Value keys = b.mulI(kernel.arg("H"), b.index(kernel.problem.keyDim()));
  Value values = b.mulI(kernel.arg("HV"), b.index(kernel.problem.valueDim()));
  auto blocksOf = [&](Value all) { return b.ceilDiv(all, width); };
  Value keyBlocks = blocksOf(keys), firstValue = b.addI(keyBlocks, keyBlocks);
  KernelBuilder::RowProgram program = kernel.locateRows(
      isLogged ? b.addI(firstValue, blocksOf(values)) : firstValue, grid,
      /*inTurns=*/false);
  auto isFrom = [&](Value first) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::uge, program.block,
                                 first);
  };
  Value isKey = isFrom(keyBlocks), isValue = isFrom(firstValue);
  auto choose = [&](Value condition, Value x, Value otherwise) -> Value {
    if (!isa<tile::RefType>(x.getType()))
      return b.select(condition, x, otherwise);
    return tile::ChooseOp::create(b, x.getType(), x, condition, otherwise);
  };
  auto pick = [&](Value q, Value k, Value v) {
    Value key = choose(isKey, k, q);
    return isLogged ? choose(isValue, v, key) : key;
  };
  auto of = [&](StringRef suffix) {
    return pick(kernel.arg(("q" + suffix).str()),
                kernel.arg(("k" + suffix).str()),
                kernel.arg(("v" + suffix).str()));
  };
  dplr::ShortConvOp conv = kernel.problem.q.conv;
  KernelBuilder::Channels c;
  if (!isLogged) {
    c.tokens = of("");
    c.stride = of("_stride");
  }
  c.cache = of("_cache");
  c.pitch = of("_cache_pitch");
  c.isFull = conv.getLayout() == dplr::CacheLayout::Full;
  c.taps = cast<RankedTensorType>(conv.getWeight().getType()).getDimSize(2);
  c.tileWidth = width;
  c.all = pick(keys, keys, values);
  Value before = pick(b.index(0), keyBlocks, firstValue);
  c.first = b.mulI(b.subI(program.block, before), b.index(width));
  c.count = b.minI(b.index(width), b.subI(c.all, c.first));
  if (!isLogged)
    return c;
  KernelBuilder::ConvolvedRows rows = kernel.loggedInputs();
  Type element = kernel.problem.dtype();
  Value start = pick(rows.start["q"], rows.start["k"], rows.start["v"]);
  c.tokens = tile::ViewOp::create(
      b, rows.ref.getType(), kernel.arg("workspace"), 0,
      b.addI(rows.after, b.mulI(start, b.index(tile::bytesOf(element)))));
  c.stride = rows.stride;
  return c;
}

void buildKeyCaches(KernelBuilder &kernel) {
  KernelBuilder::Channels channels = blockChannels(kernel);
  kernel.function->setAttr(tile::kKeyCachesAttr, kernel.b.getUnitAttr());
  kernel.storeCaches(channels, kernel.loadCaches(channels));
  kernel.storeCacheSnapshots(channels, /*onlySource=*/false);
  kernel.finish();
}

void buildLoggedCaches(KernelBuilder &kernel) {
  KernelBuilder::Channels channels = blockChannels(kernel);
  kernel.function->setAttr(tile::kKeyCachesAttr, kernel.b.getUnitAttr());
  kernel.function->setAttr("kdac.workspace",
                           kernel.b.getStringAttr(kernel.logBytes()));
  kernel.length = kernel.committedTokens();
  kernel.storeCaches(channels, kernel.loadCaches(channels));
  kernel.finish();
}

} // namespace kdac
