#include "MatmulCase.h"
#include "kdac/Reference/Random.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

namespace {

bool isGrouped(const Case &c) { return !c.spec().lengths.empty(); }

/// Every group's entries in tiles, and others that name nothing.
std::vector<int64_t> tilesOf(const Case &c) {
  std::vector<int64_t> tiles;
  for (int64_t g = 0; g < c.sequences(); ++g)
    for (int64_t first = c.offsets()[g]; first < c.offsets()[g + 1];
         first += matmulRows)
      tiles.insert(tiles.end(), {g, first});
  tiles.insert(tiles.end(), {-1, 0});
  if (c.spec().hasBadIndices)
    tiles.insert(tiles.begin(), {c.sequences(), 0, -1000000000, 1000000000, 0,
                                 -1, 0, c.tokens(), 1000000000, 5});
  return tiles;
}

/// Of every entry a choice, each once: rows of x in no order. Bad ones are
/// outside.
std::vector<int64_t> orderOf(const Case &c) {
  std::vector<int64_t> order = shuffled(c.tokens(), c.spec().seed, 77);
  if (c.spec().hasBadIndices)
    for (size_t i = 0; i < order.size(); i += 5)
      order[i] = i % 2 ? -1000000000 : 2000000000;
  return order;
}

} // namespace

std::optional<std::string> validateMatmul(const CaseSpec &spec) {
  int64_t access = 16 / dtypeSize(spec.variant.dtype);
  if (spec.columns < 0 || spec.columns % access != 0)
    return "D = " + std::to_string(spec.columns) + " must be a multiple of " +
           std::to_string(access) + " elements";
  if (spec.outputs < 0 || spec.outputs % 2 != 0)
    return "E = " + std::to_string(spec.outputs) + " must be even";
  if (spec.lengths.empty() && spec.sequences != 1)
    return "form matmul has groups of packed entries; use N = 1 or lengths";
  return std::nullopt;
}

int64_t matmulSize(const Case &c, const std::string &name) {
  int64_t entries = c.tokens(), each = c.heads();
  if (name == "T")
    return entries;
  if (name == "D")
    return c.columns();
  if (name == "E")
    return c.spec().outputs;
  if (name == "R")
    return c.spec().hasSlots ? (entries + each - 1) / each : entries;
  if (name == "G")
    return c.sequences();
  if (name == "tile_count")
    return isGrouped(c) ? static_cast<int64_t>(tilesOf(c).size()) / 2
                        : (entries + matmulRows - 1) / matmulRows;
  if (name == "each")
    return each;
  return matmulLayout(c, name.substr(0, name.rfind("_stride"))).stride;
}

Layout matmulLayout(const Case &c, const std::string &name) {
  auto size = [&](const char *of) { return matmulSize(c, of); };
  auto numbers = [](int64_t count) { return Layout{1, 1, count, count}; };
  int64_t gap = c.spec().tokenGap;
  if (name == "x")
    return {size("R"), 1, size("D"), size("D") + gap};
  if (name == "weights" || name == "up")
    return {size("G") * size("E"), 1, size("D"), size("D")};
  if (name == "tiles")
    return numbers(2 * size("tile_count"));
  if (name == "starts")
    return numbers(size("G") + 1);
  if (name == "order")
    return numbers(c.tokens());
  return {c.tokens(), 1, size("E"), size("E") + gap}; // out, sums
}

void fillGroups(Case &c) {
  auto put = [&](const char *name, const std::vector<int64_t> &numbers) {
    Buffer *buffer = c.find(name);
    for (size_t i = 0; buffer && i < numbers.size(); ++i)
      buffer->set(0, 0, static_cast<int64_t>(i), double(numbers[i]));
  };
  put("tiles", tilesOf(c));
  put("starts", c.offsets());
  put("order", orderOf(c));
}

MatmulOperands matmulOperandsOf(const Case &c) {
  MatmulOperands o;
  o.x = c.rows("x");
  o.weights = c.rows("weights");
  o.up = c.rows("up");
  if (isGrouped(c)) {
    o.tiles = tilesOf(c);
    o.starts = c.offsets();
  }
  if (c.spec().hasSlots)
    o.order = orderOf(c);
  o.each = c.heads();
  o.entries = c.tokens();
  o.width = c.columns();
  o.columns = matmulSize(c, "E");
  o.rows = matmulSize(c, "R");
  o.groups = c.sequences();
  o.kind = c.spec().variant.rows;
  o.beta = usualScale("beta");
  o.linear = usualScale("linear");
  return o;
}

} // namespace kdac::reference
