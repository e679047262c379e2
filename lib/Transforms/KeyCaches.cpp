// The kernel behind a step whose value heads share key heads: the programs of a
// key head's value heads all read its caches, so none of them may change them.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

/// The channels of q, then those of k, are numbered one after the other in
/// blocks.
static KernelBuilder::Channels keyChannels(KernelBuilder &kernel) {
  TileBuilder &b = kernel.b;
  int64_t width = kernel.schedule.getVTile();
  Value all = b.mulI(kernel.arg("H"), b.index(kernel.problem.keyDim()));
  Value blocks = b.divI(b.addI(all, b.index(width - 1)), b.index(width));
  std::string grid =
      "(2 * ceildiv(H * K, " + std::to_string(width) + ") * less(H, HV))";
  KernelBuilder::RowProgram program =
      kernel.locateRows(b.addI(blocks, blocks), grid, /*inTurns=*/false);
  Value isKey = arith::CmpIOp::create(b, arith::CmpIPredicate::uge,
                                      program.block, blocks);
  auto of = [&](StringRef suffix) -> Value {
    Value q = kernel.arg(("q" + suffix).str());
    Value k = kernel.arg(("k" + suffix).str());
    if (!isa<tile::RefType>(q.getType()))
      return arith::SelectOp::create(b, isKey, k, q);
    return tile::ChooseOp::create(b, q.getType(), k, isKey, q);
  };
  dplr::ShortConvOp conv = kernel.problem.q.conv;
  KernelBuilder::Channels c;
  c.tokens = of("");
  c.stride = of("_stride");
  c.cache = of("_cache");
  c.pitch = of("_cache_pitch");
  c.isFull = conv.getLayout() == dplr::CacheLayout::Full;
  c.taps = cast<RankedTensorType>(conv.getWeight().getType()).getDimSize(2);
  c.tileWidth = width;
  c.all = all;
  Value before = arith::SelectOp::create(b, isKey, blocks, b.index(0));
  c.first = b.mulI(b.subI(program.block, before), b.index(width));
  c.count = b.minI(b.index(width), b.subI(all, c.first));
  return c;
}

void buildKeyCaches(KernelBuilder &kernel) {
  KernelBuilder::Channels channels = keyChannels(kernel);
  kernel.function->setAttr(tile::kKeyCachesAttr, kernel.b.getUnitAttr());
  kernel.storeCaches(channels, kernel.loadCaches(channels));
  kernel.storeCacheSnapshots(channels, /*onlySource=*/false);
  kernel.finish();
}

} // namespace kdac
