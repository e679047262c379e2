#include "LogBits.h"

#include "kdac/Reference/Cache.h"

namespace kdac::selftest {

namespace {

using reference::Buffer;
using reference::Case;
using reference::CaseSpec;

constexpr int64_t sequences = 2, draftTokens = 4, valueHeads = 2;

CaseSpec specOf(const Variant &variant, int64_t tokens, uint64_t seed) {
  CaseSpec spec;
  spec.variant = variant;
  spec.sequences = sequences;
  spec.tokens = tokens;
  spec.heads = 1;
  spec.valueHeads = valueHeads;
  spec.slots = {2, 0};
  spec.accepted.assign(sequences, tokens);
  spec.seed = seed;
  return spec;
}

/// Token `t` of every sequence of `source`, and what has no tokens.
void copyToken(const Case &source, int64_t t, Case &target) {
  for (Buffer &buffer : target.buffers()) {
    const Buffer &other = *source.find(buffer.name());
    bool isIndex = buffer.dtype() == DType::I32 || buffer.dtype() == DType::I64;
    if (buffer.kind() != ArgKind::Input || buffer.name() == "h0" || isIndex)
      continue;
    bool isParameter = buffer.name() == "A_log" || buffer.name() == "dt_bias" ||
                       buffer.name() == "norm_weight" ||
                       buffer.name().substr(1) == "_conv";
    bool hasTokens = other.layout().tokens == source.tokens() && !isParameter;
    for (int64_t n = 0; n < (hasTokens ? sequences : other.layout().tokens);
         ++n)
      for (int64_t head = 0; head < other.layout().heads; ++head)
        for (int64_t i = 0; i < other.layout().width; ++i)
          buffer.set(n, head, i,
                     other.get(hasTokens ? n * draftTokens + t : n, head, i));
  }
}

/// States of sequence `n`: `differs` tells apart, else `to` takes them.
bool statesDiffer(const Case &from, const Buffer &states, int64_t n, Case &to,
                  bool copies) {
  Buffer &other = *to.find("h0");
  bool differs = false;
  for (int64_t head = 0; head < valueHeads; ++head) {
    int64_t row = from.poolRow(from.slots()[n], head);
    int64_t otherRow = to.poolRow(to.slots()[n], head);
    for (int64_t i = 0; i < other.layout().width; ++i) {
      double x = states.get(row, 0, i);
      differs |= !(x == other.get(otherRow, 0, i));
      if (copies)
        other.set(otherRow, 0, i, x);
    }
  }
  return differs;
}

/// The same of what the caches of the convolutions hold in slot `slot`.
bool cachesDiffer(const Case &from, int64_t slot, Case &to, bool copies) {
  bool differs = false;
  for (Buffer &other : to.buffers()) {
    if (!reference::isCache(other.name()))
      continue;
    const Buffer &buffer = *from.find(other.name());
    for (int64_t head = 0; head < other.layout().heads; ++head)
      for (int64_t i = 0; i < other.layout().width; ++i) {
        double x = buffer.get(slot, head, i);
        differs |= !(x == other.get(slot, head, i));
        if (copies)
          other.set(slot, head, i, x);
      }
  }
  return differs;
}

} // namespace

StatusOr<std::string>
differenceOfCommits(Kernel &kernel, const Variant &variant, uint64_t seed) {
  for (int64_t first = 0; first <= draftTokens; ++first) {
    CaseSpec spec = specOf(variant, draftTokens, seed);
    spec.accepted = {first, draftTokens - first};
    Case draft = reference::makeCase(spec);
    Case single = reference::makeCase(specOf(variant, 1, seed));
    for (int64_t n = 0; n < sequences; ++n) {
      statesDiffer(draft, *draft.poolBefore(), n, single, /*copies=*/true);
      cachesDiffer(draft, draft.slots()[n], single, /*copies=*/true);
    }
    if (Status s = kernel.run(draft); !s.ok())
      return s;
    for (int64_t t = 0; t <= draftTokens; ++t) {
      for (int64_t n = 0; n < sequences; ++n)
        if (t == spec.accepted[static_cast<size_t>(n)] &&
            (statesDiffer(draft, *draft.find("h0"), n, single, false) ||
             cachesDiffer(draft, draft.slots()[n], single, false)))
          return "a commit of " + std::to_string(t) +
                 " tokens is not the state of token-by-token decoding";
      if (t == draftTokens)
        break;
      copyToken(draft, t, single);
      if (Status s = kernel.run(single); !s.ok())
        return s;
    }
  }
  return std::string();
}

} // namespace kdac::selftest
