#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Pool.h"

#include <algorithm>
#include <cstring>

namespace kdac::reference {

namespace {

/// Slots in use without a pool: sequence n has slot n.
bool isOwned(const Case &c, int64_t sequence,
             const std::vector<int64_t> &slots) {
  return !c.spec().variant.slots || c.isSlot(slots[sequence]);
}

int64_t slotOf(const Case &c, int64_t sequence,
               const std::vector<int64_t> &slots) {
  return c.spec().variant.slots ? slots[sequence] : sequence;
}

/// The row of the oracle's convolution in front of `name`.
Rows convolved(const Case &c, const std::string &name, int64_t width) {
  const Variant &v = c.spec().variant;
  const Buffer &input = *c.find(name);
  int64_t heads = input.layout().heads, entries = cacheEntries(v);
  ShortConv conv;
  conv.input = input.rows();
  conv.weight = c.find(name + "_conv")->rows();
  conv.width = width;
  conv.taps = v.conv;
  conv.offsets = c.offsets();
  const Buffer *cache = c.cacheBefore(name + "_cache");
  if (cache)
    conv.before = [&c, &v, cache, heads, width, entries](
                      int64_t n, int64_t head, int64_t back, double *row) {
      if (n < 0 || n >= c.sequences() || !isOwned(c, n, c.sources()))
        return;
      for (int64_t channel = 0; channel < width; ++channel)
        row[channel] =
            cache->get(slotOf(c, n, c.sources()), 0,
                       cacheIndex(v, heads * width, head * width + channel,
                                  entries - back));
    };
  return shortConv(std::move(conv));
}

/// What a slot holds after the run: the inputs of a sequence up to a token.
struct Owner {
  int64_t sequence = -1, end = 0;
};

/// By slot; -1: nobody changes it.
std::vector<Owner> ownersOf(const Case &c, int64_t slots) {
  std::vector<Owner> owners(static_cast<size_t>(slots));
  bool stopped = (c.find("status") && expectedStatus(c) >= 0) ||
                 (c.spec().variant.log && !c.commits());
  for (int64_t n = 0; n < c.sequences() && !stopped; ++n) {
    if (!isOwned(c, n, c.slots()))
      continue;
    int64_t begin = c.offsets()[n], end = c.offsets()[n + 1];
    if (c.commits())
      end = std::clamp(begin + c.accepted()[n], begin, end);
    if (c.snapshots().empty())
      owners[slotOf(c, n, c.slots())] = {n, end};
    else
      for (int64_t t = begin; t < end; ++t)
        if (c.isSlot(c.snapshots()[t]))
          owners[c.snapshots()[t]] = {n, t + 1};
  }
  return owners;
}

/// The bits of one entry as they should be after the run.
double expectedEntry(const Case &c, const Buffer &input, const Buffer &before,
                     Owner owner, int64_t channel, int64_t entry) {
  const Variant &v = c.spec().variant;
  int64_t width = input.layout().width, entries = cacheEntries(v);
  int64_t sequence = owner.sequence, end = owner.end;
  int64_t begin = c.offsets()[sequence];
  int64_t token = end - entries + entry;
  if (token >= begin)
    return input.get(token, channel / width, channel % width);
  if (!isOwned(c, sequence, c.sources()))
    return 0.0;
  return before.get(slotOf(c, sequence, c.sources()), 0,
                    cacheIndex(v, input.layout().rowElements(), channel,
                               entry + end - begin));
}

std::string checkCache(const Case &c, const std::string &name) {
  const Buffer &input = *c.find(name), &after = *c.find(name + "_cache");
  const Buffer &before = *c.cacheBefore(name + "_cache");
  const Variant &v = c.spec().variant;
  int64_t channels = input.layout().rowElements();
  std::vector<Owner> owners = ownersOf(c, after.layout().tokens);
  for (int64_t slot = 0; slot < after.layout().tokens; ++slot)
    for (int64_t channel = 0; channel < channels; ++channel)
      for (int64_t e = 0; e < cacheEntries(v); ++e) {
        int64_t at = cacheIndex(v, channels, channel, e);
        double want =
            owners[slot].sequence < 0
                ? before.get(slot, 0, at)
                : expectedEntry(c, input, before, owners[slot], channel, e);
        if (after.get(slot, 0, at) != want)
          return name + "_cache has " + std::to_string(after.get(slot, 0, at)) +
                 " in slot " + std::to_string(slot) + " channel " +
                 std::to_string(channel) + " entry " + std::to_string(e) +
                 " where " + std::to_string(want) + " was expected";
      }
  return {};
}

} // namespace

bool isCache(std::string_view name) {
  return name == "q_cache" || name == "k_cache" || name == "v_cache";
}

int64_t cacheIndex(const Variant &v, int64_t channels, int64_t channel,
                   int64_t entry) {
  return v.cacheLayout == CacheLayout::Full ? channel * v.conv + entry
                                            : entry * channels + channel;
}

void addLayer(const Case &c, Operands &op) {
  const Variant &v = c.spec().variant;
  if (v.conv) {
    op.q = convolved(c, "q", v.keyDim);
    op.k = convolved(c, "k", v.keyDim);
    op.v = convolved(c, "v", v.valueDim);
    if (*v.l2norm) {
      op.q = l2norm(op.q, v.keyDim);
      op.k = l2norm(op.k, v.keyDim);
    }
  }
  if (v.norm != OutputNorm::None)
    op.norm = {v.norm, c.find("z")->rows(), c.find("norm_weight")->rows(),
               v.normEps};
}

std::vector<std::string> cacheFailures(const Case &c) {
  std::vector<std::string> failures;
  for (const char *name : {"q", "k", "v"})
    if (c.cacheBefore(std::string(name) + "_cache"))
      if (std::string text = checkCache(c, name); !text.empty())
        failures.push_back(text);
  return failures;
}

} // namespace kdac::reference
