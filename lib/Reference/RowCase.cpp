#include "RowCase.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/RowOps.h"

namespace kdac::reference {

std::optional<std::string> validateRows(const CaseSpec &spec) {
  const Variant &v = spec.variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  if (!spec.lengths.empty() || spec.sequences != 1)
    return "form rows has no sequences; use N = 1 and no lengths";
  if (spec.columns < 0 || spec.columns % multiple != 0 ||
      (v.width && spec.columns > longestRow(v)))
    return "D = " + std::to_string(spec.columns) + " must be a multiple of " +
           std::to_string(multiple) + " elements" +
           (v.width ? " up to " + std::to_string(longestRow(v)) : "");
  return std::nullopt;
}

Layout rowLayout(const Case &c, const std::string &name) {
  RowOp op = c.spec().variant.rows;
  int64_t width = c.columns(), stride = width + c.spec().tokenGap;
  if (name == "weight" || name == "query") {
    int64_t columns = op == RowOp::Latent ? c.rank() : width;
    return {1, 1, columns, columns};
  }
  if (name == "slots" || name == "positions")
    return {1, 1, c.tokens(), c.tokens()};
  if (name == "table") {
    int64_t pages = static_cast<int64_t>(pageTableOf(c).pages.size());
    return {1, 1, pages, pages};
  }
  if (name == "out" && op == RowOp::Latent)
    return {pageTableOf(c).rows, 1, width, stride};
  if (name == "x" && op == RowOp::Mix)
    return {c.entries() * c.rowsOfEntry(), 1, width, stride};
  int64_t entries = c.entries();
  if (name == "index")
    return {1, 1, c.tokens() * entries, c.tokens() * entries};
  if (name == "scales")
    return {c.tokens(), 1, entries, entries};
  bool isSource = picksRows(op) && name == "x";
  return {isSource ? c.sourceRows() : c.tokens(), 1, width, stride};
}

int64_t rowSize(const Case &c, const std::string &name) {
  if (name == "T")
    return c.tokens();
  if (name == "D")
    return c.columns();
  if (name == "E")
    return c.entries();
  if (name == "x_pitch")
    return c.rowsOfEntry() * rowLayout(c, "x").stride;
  if (name == "R" && picksRows(c.spec().variant.rows))
    return c.sourceRows();
  if (c.spec().variant.rows == RowOp::Latent) {
    PageTable table = pageTableOf(c);
    for (auto [size, value] : {std::pair("rank", c.rank()),
                               {"R", table.rows},
                               {"S", table.slots},
                               {"P", table.pagesOfSlot},
                               {"page", table.page}})
      if (name == size)
        return value;
  }
  return c.strideOf(name);
}

RowOperands rowOperandsOf(const Case &c) {
  RowOperands o;
  o.op = c.spec().variant.rows;
  o.tokens = c.tokens();
  o.width = c.columns();
  o.x = c.rows("x");
  o.branch = c.rows("branch");
  o.weight = c.rows("weight");
  o.gate = c.rows("gate");
  o.up = c.rows("up");
  if (const Buffer *index = c.find("index"))
    for (int64_t i = 0; i < index->layout().width; ++i)
      o.index.push_back(static_cast<int64_t>(index->get(0, 0, i)));
  o.scales = c.rows("scales");
  o.query = c.rows("query");
  o.entries = c.entries();
  o.sources = o.op == RowOp::Mix ? c.rowsOfEntry() : c.sourceRows();
  if (o.op == RowOp::Latent) {
    o.rank = c.rank();
    o.place = placesOf(c);
    o.places = pageTableOf(c).rows;
  }
  o.eps = usualScale("eps");
  o.beta = usualScale("beta");
  o.linear = usualScale("linear");
  return o;
}

} // namespace kdac::reference
