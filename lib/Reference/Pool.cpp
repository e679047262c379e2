#include "kdac/Reference/Pool.h"
#include "kdac/Reference/Random.h"
#include "kdac/Variant/SlotFault.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

namespace kdac::reference {

namespace {

/// Slots of a pool beyond those that are needed, and how far apart draws are.
constexpr int64_t spareSlots = 3;

/// A random order of 0 .. count - 1.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed, /*stream=*/0x736c6f74);
  for (int64_t i = count - 1; i > 0; --i) {
    auto j = static_cast<int64_t>(random.uniform(static_cast<uint64_t>(i)) *
                                  static_cast<double>(i + 1));
    std::swap(order[i], order[std::min(j, i)]);
  }
  return order;
}

bool isEntry(const Case &c, int64_t index) {
  return index == -1 || c.isSlot(index);
}

const std::byte *rowOf(const Buffer &pool, int64_t row) {
  return static_cast<const std::byte *>(pool.data()) +
         pool.layout().at(row, 0, 0) * dtypeSize(pool.dtype());
}

size_t rowBytes(const Buffer &pool) {
  return static_cast<size_t>(pool.layout().rowElements() *
                             dtypeSize(pool.dtype()));
}

/// A slot that the run writes and the row of the oracle's states that belongs
/// there: of finalState, or of states with snapshots.
struct Write {
  int64_t slot, row;
};

std::vector<Write> writesOf(const Case &c) {
  std::vector<Write> writes;
  for (int64_t n = 0; n < c.sequences(); ++n) {
    if (!c.isSlot(c.slots()[n]) || (c.spec().variant.log && !c.commits()))
      continue;
    if (c.snapshots().empty())
      writes.push_back({c.slots()[n], n});
    else
      for (int64_t t = c.offsets()[n]; t < c.offsets()[n + 1]; ++t)
        if (c.isSlot(c.snapshots()[t]))
          writes.push_back({c.snapshots()[t], t});
  }
  return writes;
}

/// True if the row holds what it held before the run, or poison beside it.
bool untouched(const Case &c, int64_t row) {
  const Buffer &after = *c.poolAfter(), &before = *c.poolBefore();
  if (c.spec().inPlace)
    return std::memcmp(rowOf(after, row), rowOf(before, row),
                       rowBytes(after)) == 0;
  const std::byte *bytes = rowOf(after, row);
  return std::all_of(bytes, bytes + rowBytes(after),
                     [](std::byte b) { return b == std::byte{0xff}; });
}

std::string checkUntouched(const Case &c, const std::set<int64_t> &written) {
  for (int64_t slot = 0; slot < c.poolSlots(); ++slot)
    for (int64_t head = 0; head < c.poolRow(1, 0); ++head) {
      bool isOwned = written.count(slot) && head < c.valueHeads();
      if (!isOwned && !untouched(c, c.poolRow(slot, head)))
        return "slot " + std::to_string(slot) + " head " +
               std::to_string(head) + ", which nothing owns, was written to";
    }
  return {};
}

std::string checkEmpty(const Case &c) {
  const Buffer &after = *c.poolAfter(), &before = *c.poolBefore();
  for (int64_t n = 0; n < c.sequences(); ++n) {
    bool isEmpty = c.offsets()[n] == c.offsets()[n + 1] ||
                   (c.commits() && c.accepted()[n] <= 0);
    if (!isEmpty || (c.spec().variant.log && !c.commits()) ||
        !c.isSlot(c.slots()[n]) || !c.snapshots().empty())
      continue;
    bool hasSource = c.spec().hasInitial && c.isSlot(c.sources()[n]);
    std::vector<std::byte> zeros(rowBytes(after));
    for (int64_t head = 0; head < c.valueHeads(); ++head)
      if (std::memcmp(rowOf(after, c.poolRow(c.slots()[n], head)),
                      hasSource ? rowOf(before, c.poolRow(c.sources()[n], head))
                                : zeros.data(),
                      rowBytes(after)) != 0)
        return "empty sequence " + std::to_string(n) +
               " does not pass its state through bitwise";
  }
  return {};
}

std::string checkSkipped(const Case &c) {
  const Buffer &out = *c.find("out");
  for (int64_t n = 0; n < c.sequences(); ++n)
    for (int64_t t = c.offsets()[n];
         !c.isSlot(c.slots()[n]) && t < c.offsets()[n + 1]; ++t)
      for (int64_t head = 0; head < c.valueHeads(); ++head)
        for (int64_t j = 0; j < out.layout().width; ++j)
          if (!(out.get(t, head, j) == 0.0))
            return "skipped sequence " + std::to_string(n) +
                   " has an output that is not zero";
  return {};
}

/// After a bad index of a checked launch.
std::string checkNothingWritten(const Case &c) {
  const Buffer &out = *c.find("out");
  for (int64_t t = 0; t < c.tokens(); ++t)
    for (int64_t head = 0; head < c.valueHeads(); ++head)
      for (int64_t j = 0; j < out.layout().width; ++j)
        if (!out.isPoison(t, head, j))
          return "out was written in spite of a bad index";
  return c.poolAfter() ? checkUntouched(c, {}) : std::string();
}

} // namespace

std::string describePool(const CaseSpec &spec) {
  std::string text = " pool";
  auto list = [&](const char *what, const std::vector<int64_t> &indices) {
    if (!indices.empty())
      text += what;
    for (size_t i = 0; i < indices.size(); ++i)
      text += (i ? "," : "") + std::to_string(indices[i]);
  };
  for (auto [holds, what] : {std::pair(spec.inPlace, " in-place"),
                             std::pair(!spec.hasSlots, " dense"),
                             std::pair(spec.hasSources, " sources"),
                             std::pair(!spec.hasSnapshots, " no-snapshots"),
                             std::pair(!spec.commits, " no-commit"),
                             std::pair(!spec.checked, " unchecked")})
    if (holds)
      text += what;
  list(" slots ", spec.slots);
  list(" from ", spec.sources);
  list(" to ", spec.snapshots);
  list(" accepted ", spec.accepted);
  if (spec.headGap || spec.slotGap)
    text += " gaps " + std::to_string(spec.headGap) + "," +
            std::to_string(spec.slotGap);
  return text;
}

void Case::choosePool() {
  const CaseSpec &spec = description;
  bool keeps = spec.variant.snapshots && spec.hasSnapshots;
  int64_t n = sequences();
  poolCount =
      n + (spec.hasSources ? n : 0) + (keeps ? bufferTokens : 0) + spareSlots;
  std::vector<int64_t> order = shuffled(poolCount, spec.seed);
  // What is drawn does not meet what is given.
  for (const auto *given : {&spec.slots, &spec.sources, &spec.snapshots})
    for (int64_t index : *given)
      order.erase(std::remove(order.begin(), order.end(), index), order.end());
  auto next = order.begin();
  auto choose = [&](const std::vector<int64_t> &given, int64_t count) {
    if (!given.empty())
      return given;
    next += count;
    return std::vector<int64_t>(next - count, next);
  };
  slotOf = choose(spec.slots, n);
  if (!spec.hasSlots)
    std::iota(slotOf.begin(), slotOf.end(), 0);
  else if (spec.slots.empty() && n > 2)
    slotOf[1] = -1;
  sourceOf = spec.hasSources ? choose(spec.sources, n) : slotOf;
  if (spec.hasSources && spec.sources.empty() && n > 1)
    sourceOf[0] = -1;
  if (spec.variant.log && spec.commits) {
    acceptedOf = spec.accepted;
    Random random(spec.seed, /*stream=*/0x61636370);
    for (int64_t i = static_cast<int64_t>(acceptedOf.size()); i < n; ++i)
      acceptedOf.push_back( // beyond both ends too: counts are clamped
          static_cast<int64_t>(
              random.uniform(static_cast<uint64_t>(i)) *
              static_cast<double>(bounds[i + 1] - bounds[i] + 3)) -
          1);
  }
  if (!keeps)
    return;
  snapshotOf = choose(spec.snapshots, bufferTokens);
  if (spec.snapshots.empty() && bufferTokens > 3)
    snapshotOf[2] = -1;
}

void Case::fillIndices() {
  for (auto [name, indices] :
       {std::pair("slots", &slotOf), std::pair("sources", &sourceOf),
        std::pair("snapshots", &snapshotOf),
        std::pair("accepted", &acceptedOf)})
    if (Buffer *buffer = find(name))
      for (size_t i = 0; i < indices->size(); ++i)
        buffer->set(0, 0, static_cast<int64_t>(i),
                    static_cast<double>((*indices)[i]));
  const Buffer *pool = find("h0");
  if (!pool)
    return;
  before = std::make_shared<Buffer>("before", ArgKind::Input, pool->dtype(),
                                    pool->layout());
  std::memcpy(before->whole(), pool->whole(),
              static_cast<size_t>(pool->wholeBytes()));
}

const Buffer *Case::poolAfter() const {
  if (!description.variant.slots || !description.hasFinal)
    return nullptr;
  return find(description.inPlace ? "h0" : "ht");
}

void Case::restorePool() {
  Buffer *pool = before ? find("h0") : nullptr;
  if (pool)
    std::memcpy(pool->whole(), before->whole(),
                static_cast<size_t>(pool->wholeBytes()));
}

void addPool(const Case &c, Operands &operands) {
  for (int64_t slot : c.slots())
    operands.skipped.push_back(!c.isSlot(slot));
  operands.keepAll = !c.snapshots().empty();
  operands.accepted = c.accepted();
  const Buffer *pool = c.poolBefore();
  if (!pool)
    return;
  operands.initial = [&c, rows = pool->rows(), width = pool->layout().width](
                         int64_t sequence, int64_t head, double *x) {
    int64_t slot = c.sources()[sequence];
    if (c.isSlot(slot))
      rows(c.poolRow(slot, head), 0, x);
    else
      std::fill(x, x + width, 0.0);
  };
}

int64_t expectedStatus(const Case &c) {
  int64_t first = -1;
  auto report = [&](bool bad, int64_t entry, SlotFault fault) {
    int64_t word = slotFaultKinds * entry + fault;
    if (bad && (first < 0 || word < first))
      first = word;
  };
  const std::vector<int64_t> &slots = c.slots(), &sources = c.sources();
  for (int64_t n = 0; n < c.sequences(); ++n) {
    report(!isEntry(c, slots[n]), n, SlotRange);
    report(!isEntry(c, sources[n]), n, SourceRange);
    for (int64_t m = 0; m < c.sequences(); ++m) {
      report(m < n && slots[n] >= 0 && slots[m] == slots[n], n, SlotTwice);
      report(m != n && sources[n] >= 0 && slots[m] == sources[n] &&
                 c.spec().hasSources && c.snapshots().empty(),
             n, SourceWritten);
    }
  }
  const std::vector<int64_t> &to = c.snapshots();
  for (int64_t t = 0; t < static_cast<int64_t>(to.size()); ++t) {
    report(!isEntry(c, to[t]), t, SnapshotRange);
    for (int64_t u = 0; u < t; ++u)
      report(to[t] >= 0 && to[t] == to[u], t, SnapshotTaken);
    for (int64_t n = 0; n < c.sequences(); ++n)
      report((t < c.offsets()[n] || t >= c.offsets()[n + 1]) && to[t] >= 0 &&
                 to[t] == sources[n],
             t, SnapshotTaken);
  }
  return first;
}

WrittenStates writtenStates(const Case &c, const Results &expected) {
  const Buffer &pool = *c.poolAfter();
  std::vector<Write> writes = writesOf(c);
  int64_t heads = c.valueHeads(), width = pool.layout().width;
  auto count = static_cast<int64_t>(writes.size());
  WrittenStates states{Buffer("ht", ArgKind::Output, pool.dtype(),
                              Layout{count, heads, width, heads * width}),
                       {}};
  const std::vector<double> &from =
      c.snapshots().empty() ? expected.finalState : expected.states;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t head = 0; head < heads; ++head) {
      auto *to = static_cast<std::byte *>(states.actual.data()) +
                 static_cast<size_t>(i * heads + head) * rowBytes(pool);
      std::memcpy(to, rowOf(pool, c.poolRow(writes[i].slot, head)),
                  rowBytes(pool));
      auto row = from.begin() + (writes[i].row * heads + head) * width;
      states.expected.insert(states.expected.end(), row, row + width);
    }
  return states;
}

std::vector<std::string> poolFailures(const Case &c) {
  std::vector<std::string> failures;
  auto add = [&](const std::string &text) {
    if (!text.empty())
      failures.push_back(text);
  };
  const Buffer *status = c.find("status");
  int64_t word = status ? expectedStatus(c) : -1;
  if (status && static_cast<int64_t>(status->get(0, 0, 0)) != word)
    add("the status word is " + std::to_string(status->get(0, 0, 0)) +
        " where " + std::to_string(word) + " was expected");
  if (status && word >= 0) {
    add(checkNothingWritten(c));
    return failures;
  }
  add(checkSkipped(c));
  if (!c.poolAfter())
    return failures;
  std::set<int64_t> written;
  for (const Write &write : writesOf(c))
    written.insert(write.slot);
  add(checkUntouched(c, written));
  add(checkEmpty(c));
  return failures;
}

} // namespace kdac::reference
