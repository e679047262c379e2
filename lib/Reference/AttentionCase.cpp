#include "AttentionCase.h"
#include "kdac/Reference/Random.h"

#include <algorithm>
#include <numeric>

namespace kdac::reference {

namespace {

/// Pages that sequences of these lengths need, and a few more of everything.
struct Pool {
  int64_t pages = 3, slots, pitch = 1;

  explicit Pool(const CaseSpec &spec) {
    std::vector<int64_t> lengths = keyLengths(spec);
    slots = static_cast<int64_t>(lengths.size()) + 2;
    for (int64_t length : lengths) {
      int64_t own = (length + pageKeys - 1) / pageKeys;
      pages += own;
      pitch = std::max(pitch, own + 1);
    }
  }
};

std::vector<int64_t> integersOf(const Case &c, const char *name) {
  std::vector<int64_t> all;
  if (const Buffer *buffer = c.find(name))
    for (int64_t i = 0; i < buffer->layout().width; ++i)
      all.push_back(static_cast<int64_t>(buffer->get(0, 0, i)));
  return all;
}

} // namespace

std::vector<int64_t> keyLengths(const CaseSpec &spec) {
  if (!spec.lengths.empty())
    return spec.lengths;
  return std::vector<int64_t>(static_cast<size_t>(spec.sequences), spec.tokens);
}

std::optional<std::string> validateAttention(const CaseSpec &spec) {
  const Variant &v = spec.variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  if (spec.columns < 0 || spec.columns % multiple != 0 ||
      spec.columns > v.keyDim)
    return "D = " + std::to_string(spec.columns) + " must be a multiple of " +
           std::to_string(multiple) + " elements up to " +
           std::to_string(v.keyDim);
  if (spec.trailing || spec.tokenGap)
    return "form attention has no trailing tokens and no gaps";
  return std::nullopt;
}

int64_t valueColumns(const CaseSpec &spec, int64_t columns) {
  const Variant &v = spec.variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  return columns * v.valueDim / v.keyDim / multiple * multiple;
}

int64_t attentionSize(const Case &c, const std::string &name) {
  Pool pool(c.spec());
  if (name == "N")
    return c.sequences();
  if (name == "H")
    return c.heads();
  if (name == "D")
    return c.columns();
  if (name == "R")
    return valueColumns(c.spec(), c.columns());
  if (name == "P")
    return pool.pages;
  return name == "S" ? pool.slots : pool.pitch;
}

Layout attentionLayout(const Case &c, const std::string &name) {
  auto size = [&](const char *of) { return attentionSize(c, of); };
  int64_t width = name == "out" ? size("R") : size("D");
  if (name == "q" || name == "out")
    return {size("N"), size("H"), width, size("H") * width};
  if (name == "pages")
    return {size("P") * pageKeys, 1, width, width};
  int64_t entries = name == "table" ? size("S") * size("table_pitch")
                                    : size("N"); // slots, lengths
  return {1, 1, entries, entries};
}

/// Slots and pages in no order, entries without a page out of range. With bad
/// indices some pages, one slot and one length are, too.
void fillTable(Case &c) {
  const CaseSpec &spec = c.spec();
  Pool pool(spec);
  std::vector<int64_t> lengths = keyLengths(spec);
  std::vector<int64_t> pages = shuffled(pool.pages, spec.seed, 1);
  std::vector<int64_t> slots = shuffled(pool.slots, spec.seed, 2);
  if (!spec.hasSlots)
    std::iota(slots.begin(), slots.end(), 0);
  Buffer &table = *c.find("table");
  for (int64_t i = 0; i < pool.slots * pool.pitch; ++i)
    table.set(0, 0, i, i % 2 ? -1.0 : double(pool.pages));
  int64_t next = 0;
  for (size_t n = 0; n < lengths.size(); ++n)
    for (int64_t j = 0; j * pageKeys < lengths[n]; ++j, ++next)
      if (!spec.hasBadIndices || next % 3 != 1)
        table.set(0, 0, slots[n] * pool.pitch + j,
                  double(pages[static_cast<size_t>(next)]));
  for (size_t n = 0; n < lengths.size(); ++n) {
    bool isLast = n > 0 && n + 1 == lengths.size();
    bool isBad = spec.hasBadIndices && isLast;
    int64_t length = lengths[n];
    if (spec.hasBadIndices && n == 0)
      length += pool.pitch * pageKeys; // beyond the table's row
    auto at = static_cast<int64_t>(n);
    c.find("lengths")->set(0, 0, at, double(length));
    if (Buffer *buffer = c.find("slots"))
      buffer->set(0, 0, at, isBad ? double(pool.slots) : double(slots[n]));
  }
}

AttentionOperands
operandsOfSizes(const std::function<int64_t(const char *)> &size) {
  AttentionOperands o;
  o.sequences = size("N");
  o.heads = size("H");
  o.width = size("D");
  o.values = size("R");
  o.pageCount = size("P");
  o.pageRows = pageKeys;
  o.slotCount = size("S");
  o.tablePitch = size("table_pitch");
  return o;
}

AttentionOperands attentionOperandsOf(const Case &c) {
  auto size = [&](const char *of) { return attentionSize(c, of); };
  AttentionOperands o = operandsOfSizes(size);
  o.q = c.rows("q");
  o.pages = c.rows("pages");
  o.table = integersOf(c, "table");
  o.slots = integersOf(c, "slots");
  o.lengths = integersOf(c, "lengths");
  o.scale = c.scale();
  return o;
}

} // namespace kdac::reference
