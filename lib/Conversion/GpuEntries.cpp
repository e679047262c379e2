// Entries of channels (`entry` of tile.load): in the step form what a channel
// has is one access, whichever of its entries are asked for.
//
//   %x = tile.load %ref[%channel + %e] stride %c4 entry %e
//   %y = tile.load %ref[%channel + %f] stride %c4 entry %f
//
// are four elements a channel at once, of which x and y are picked.
#include "GpuAccess.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// What `entry` was added to in `base`, or null.
static Value channelOf(Value base, Value entry) {
  std::optional<int64_t> number = getConstantIntValue(entry);
  if (number == 0)
    return base;
  auto isEntry = [&](Value term) {
    return term == entry || (number && getConstantIntValue(term) == number);
  };
  auto sum = base.getDefiningOp<arith::AddIOp>();
  if (!sum)
    return {};
  if (isEntry(sum.getRhs()))
    return sum.getLhs();
  return isEntry(sum.getLhs()) ? sum.getRhs() : Value();
}

/// Element `entry` (i32) of the channel that `words` are, `each` of them a
/// word.
static Value entryOf(GpuEmitter &b, ArrayRef<Value> words, Value entry,
                     int64_t each, Type element) {
  // Where the entry is none of the channel, nothing uses the result.
  Value word = words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    Value isLater =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, entry,
                              b.i32(static_cast<int64_t>(i) * each));
    word = arith::SelectOp::create(b, isLater, words[i], word);
  }
  if (each == 1)
    return word;
  Value shift = b.shiftLeft(b.bitAnd(entry, 1), 4);
  return b.unpack16(arith::ShRUIOp::create(b, word, shift), false, element);
}

std::optional<GpuLowering::Values>
GpuLowering::loadEntries(tile::LoadOp op, Value ref, Value base, Value stride,
                         const Group &group, bool invariant) {
  Value entry = op.getEntry();
  Value channel = entry ? channelOf(base, entry) : Value();
  int64_t count = getConstantIntValue(stride).value_or(0);
  Type element = op.getResult().getType().getElementType();
  int64_t each = 4 / bytesOf(element), bytes = count * bytesOf(element);
  if (!channel || count < 2 || !llvm::isPowerOf2_64(count) || bytes > 16)
    return std::nullopt;
  Access access = accessOf(op, op.getResult().getType());
  access.ref = scalars.lookup(ref);
  access.base = b.toI64(scalars.lookup(channel));
  access.stride = b.i64(count);
  Value number = b.toI32(scalars.lookup(entry));
  Values result;
  for (int64_t i = 0; i < group.width; ++i) {
    Group one = group;
    one.col = group.col.plus(i);
    one.width = 1;
    auto [found, isNew] = memo.try_emplace(
        {ref.getAsOpaquePointer(), Coord{channel, 0}, one.col, 1, 0});
    if (isNew)
      found->second =
          b.loadWordsIf(validityOf(ref, op.getValid(),
                                   op.getResult().getType().getShape(), one),
                        globalPointer(access, one, 0), each == 2, bytes / 4,
                        bytes, invariant);
    result.push_back(entryOf(b, found->second, number, each, element));
  }
  return result;
}

} // namespace kdac
