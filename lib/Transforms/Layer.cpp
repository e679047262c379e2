// The parts of a layer around the recurrence: short convolutions with their
// caches, one token at a time, and the gated norm of the output.
#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

KernelBuilder::Channels KernelBuilder::channelsOf(StringRef name,
                                                  const MappedOperand &source) {
  bool isValue = name == "v";
  dplr::ShortConvOp conv = source.conv;
  Channels c;
  c.name = name.str();
  c.tokens = arg(name);
  c.stride = arg((name + "_stride").str());
  c.weight = arg((name + "_conv").str());
  c.cache = arg((name + "_cache").str());
  c.pitch = arg((name + "_cache_pitch").str());
  int64_t width = isValue ? problem.valueDim() : problem.keyDim();
  c.tileWidth = isValue ? valueTile : keyTile;
  c.taps = cast<RankedTensorType>(conv.getWeight().getType()).getDimSize(2);
  c.isFull = conv.getLayout() == dplr::CacheLayout::Full;
  c.first = b.mulI(isValue ? valueHead : keyHead, b.index(width));
  c.all = b.mulI(arg(isValue ? "HV" : "H"), b.index(width));
  c.count = b.index(width);
  return c;
}

static Type elementOf(Value ref) {
  return cast<tile::RefType>(ref.getType()).getElementType();
}

static int64_t bytesOf(Value ref) {
  return elementOf(ref).getIntOrFloatBitWidth() / 8;
}

/// Where entry `entry` of the head's channels lies in a slot: base and stride.
static std::pair<Value, Value> cacheAddress(TileBuilder &b, Value start,
                                            Value first, Value all, Value entry,
                                            int64_t fullTaps) {
  if (!fullTaps)
    return {b.addI(start, b.addI(b.mulI(entry, all), first)), b.index(1)};
  Value taps = b.index(fullTaps);
  return {b.addI(b.addI(start, b.mulI(first, taps)), entry), taps};
}

/// Whole channels of two or four entries are aligned to their bytes, in a full
/// cache by the promise of pitches (launchArgs).
static bool areAligned(const KernelBuilder::Channels &c) {
  return llvm::isPowerOf2_64(c.taps);
}

/// Bytes that entry `entry` of every channel is aligned to.
static int64_t entryAlignment(const KernelBuilder::Channels &c, int64_t entry) {
  bool isAligned = c.isFull && entry == 0 && areAligned(c);
  return bytesOf(c.cache) * (isAligned ? c.taps : 1);
}

/// The inputs at `position` of the sequence, or from before it: entry `entry`
/// of the slot it starts from. f32.
Value KernelBuilder::inputAt(const Channels &c, Value position, Value entry) {
  Value isToken =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, position, b.index(0));
  Value cache = hasSource ? b.guarded(c.cache, hasSource) : c.cache;
  Value ref =
      tile::ChooseOp::create(b, cache.getType(), c.tokens, isToken, cache);
  Value token = b.addI(b.mulI(b.addI(begin, position), c.stride), c.first);
  auto [kept, keptStride] = cacheAddress(b, b.mulI(source, c.pitch), c.first,
                                         c.all, entry, c.isFull ? c.taps : 0);
  Value base = b.select(isToken, token, kept);
  Value stride = b.select(isToken, b.index(1), keptStride);
  return b.toF32(
      tile::LoadOp::create(b, b.tileType({c.tileWidth}, elementOf(ref)), ref,
                           base, stride, ValueRange{c.count}, bytesOf(ref),
                           false, c.isFull && areAligned(c) ? entry : Value()));
}

Value KernelBuilder::weightOf(const Channels &c, int64_t tap) {
  return b.toF32(tile::LoadOp::create(
      b, b.tileType({c.tileWidth}, elementOf(c.weight)), c.weight,
      b.addI(b.mulI(c.first, b.index(c.taps)), b.index(tap)), b.index(c.taps),
      ValueRange{c.count}, bytesOf(c.weight), false,
      areAligned(c) ? b.index(tap) : Value()));
}

Value KernelBuilder::loadConvolved(StringRef name, const MappedOperand &source,
                                   Value token,
                                   SmallVectorImpl<Value> &inputs) {
  if (!source.conv)
    return b.toF32(name == "v" ? loadValueRows(token, 0, {})
                               : loadKeyRows(name, token, 0, {}));
  Channels c = channelsOf(name, source);
  Value local = b.subI(token, begin), sum;
  for (int64_t tap = 0; tap < c.taps; ++tap) {
    Value position = b.subI(local, b.index(c.taps - 1 - tap));
    // Entries in use are the newest: the last one is position -1.
    Value x = inputAt(c, position, b.addI(position, b.index(c.entries())));
    Value term = b.mul(x, weightOf(c, tap));
    sum = sum ? b.add(sum, term) : term;
    inputs.push_back(x);
  }
  return b.mul(sum, b.sigmoid(sum));
}

std::vector<KernelBuilder::Channels> KernelBuilder::allChannels() {
  std::vector<Channels> all;
  for (auto [name, operand] :
       {std::pair("q", &problem.q), std::pair("k", &problem.k),
        std::pair("v", &problem.v)})
    if (operand->conv)
      all.push_back(channelsOf(name, *operand));
  Value isAlone = b.isEqual(arg("HV"), arg("H"));
  for (Channels &c : llvm::drop_end(all)) // of q and k
    c.cache = b.guarded(c.cache, isAlone);
  return all;
}

/// Entry e takes the input `entries - e` before the sequence's end; where that
/// was before the sequence, an older entry moves down.
SmallVector<Value> KernelBuilder::loadCaches(ArrayRef<Channels> channels,
                                             Value count) {
  SmallVector<Value> kept;
  for (const Channels &c : channels)
    for (int64_t e = 0; e < c.entries(); ++e) {
      Value position = b.subI(count, b.index(c.entries() - e));
      kept.push_back(inputAt(c, position, b.addI(count, b.index(e))));
    }
  return kept;
}

SmallVector<Value> KernelBuilder::loadCaches(ArrayRef<Channels> channels) {
  return llvm::map_to_vector(loadCaches(channels, length),
                             [&](Value kept) { return b.once(kept); });
}

void KernelBuilder::storeCaches(ArrayRef<Channels> channels,
                                ArrayRef<Value> kept) {
  std::vector<Channels> changed(channels);
  for (Channels &c : changed)
    c.cache = unlessSnapshots(c.cache);
  storeCaches(changed, kept, slot);
}

void KernelBuilder::moveCaches(ArrayRef<Channels> channels) {
  if (channels.empty())
    return;
  Value isEmpty = b.isEqual(length, b.index(0));
  std::vector<Channels> moved(channels);
  for (Channels &c : moved) {
    c.tokens = b.guarded(c.tokens, isEmpty);
    c.cache = b.guarded(unlessSnapshots(c.cache), isEmpty);
  }
  storeCaches(moved, loadCaches(moved, length), slot);
}

void KernelBuilder::storeInputs(ArrayRef<Channels> channels,
                                ArrayRef<Value> inputs, Value tokens) {
  SmallVector<Value> kept;
  for (const Channels &c : channels) {
    llvm::append_range(kept, inputs.take_front(c.taps).take_back(c.entries()));
    inputs = inputs.drop_front(c.taps);
  }
  auto storeIf = [&](Value condition, Value to) {
    std::vector<Channels> changed(channels);
    for (Channels &c : changed)
      c.cache =
          b.guarded(to == slot ? unlessSnapshots(c.cache) : c.cache, condition);
    storeCaches(changed, kept, to);
  };
  storeIf(b.isEqual(tokens, length), slot);
  if (!arg("snapshots"))
    return;
  Value index = snapshotOf(b.addI(begin, b.subI(tokens, b.index(1))));
  Value isOther =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, index, source);
  storeIf(b.both(isOther, isSlot(index)), index);
}

void KernelBuilder::storeCacheSnapshots(ArrayRef<Channels> channels,
                                        bool onlySource) {
  Value snapshots = arg("snapshots");
  if (!snapshots || channels.empty())
    return;
  Value given = tile::PresentOp::create(b, snapshots);
  Value count = b.select(given, length, b.index(0));
  using arith::CmpIPredicate;
  for (auto predicate : {CmpIPredicate::ne, CmpIPredicate::eq}) {
    if (onlySource && predicate == CmpIPredicate::ne)
      continue;
    b.forEach(b.index(0), count, b.index(1), [&](Value number) {
      Value index = snapshotOf(b.addI(begin, number));
      Value isNow = arith::CmpIOp::create(b, predicate, index, source);
      isNow = b.both(isNow, isSlot(index));
      SmallVector<Value> kept =
          loadCaches(channels, b.addI(number, b.index(1)));
      std::vector<Channels> changed(channels);
      for (Channels &c : changed)
        c.cache = b.guarded(c.cache, isNow);
      storeCaches(changed, kept, index);
    });
  }
}

void KernelBuilder::storeCaches(ArrayRef<Channels> channels,
                                ArrayRef<Value> kept, Value slot) {
  for (const Channels &c : channels)
    for (int64_t e = 0; e < c.entries(); ++e) {
      auto [base, stride] =
          cacheAddress(b, b.mulI(slot, c.pitch), c.first, c.all, b.index(e),
                       c.isFull ? c.taps : 0);
      tile::StoreOp::create(b, b.round(kept.front(), elementOf(c.cache)),
                            c.cache, base, stride, ValueRange{c.count},
                            entryAlignment(c, e), false);
      kept = kept.drop_front();
    }
}

Value KernelBuilder::loadOutputGate(Value token) {
  if (!problem.norm)
    return {};
  Value weight = loadNormWeight();
  Value gate = b.toF32(loadValueRows(token, 0, {}, "z"));
  return b.once(b.mul(weight, openGate(gate)));
}

Value KernelBuilder::gated(Value out, Value open) {
  if (!problem.norm)
    return out;
  out = b.once(out);
  Value inverse = inverseMean(b.sum(b.mul(out, out), 0));
  return b.mul(b.mul(out, b.splat(inverse, {valueTile})), open);
}

/// 1 / sqrt(mean + eps) of sums of squares over V.
Value KernelBuilder::inverseMean(Value squares) {
  dplr::GatedRmsNormOp norm = problem.norm;
  Value mean = b.mul(squares, 1.0 / static_cast<double>(problem.valueDim()));
  Value eps = b.constantLike(mean, norm.getEps().convertToDouble());
  return b.rsqrt(b.add(mean, eps));
}

Value KernelBuilder::loadNormWeight() {
  return tile::LoadOp::create(
      b, b.tileType({valueTile}), arg("norm_weight"), b.index(0), b.index(1),
      ValueRange{b.index(problem.valueDim())}, 4, false);
}

Value KernelBuilder::openGate(Value gate) {
  dplr::GatedRmsNormOp norm = problem.norm;
  Value open = b.sigmoid(gate);
  bool isSilu = norm.getActivation() == dplr::Activation::Silu;
  return isSilu ? b.mul(open, gate) : open;
}

} // namespace kdac
