#include "BenchRows.h"

#include "kdac/Reference/Places.h"

namespace kdac::selftest {

constexpr int64_t page = 64; ///< rows of one

int64_t BenchRows::size(const std::string &name) const {
  int64_t rows = shape.allTokens(), width = shape.heads;
  int64_t entries = hasEntries(v.rows) ? reference::usualEntries : 1;
  int64_t pages = (rows + page - 1) / page;
  bool isLatent = v.rows == RowOp::Latent;
  for (auto [size, value] :
       {std::pair("tokens", rows),
        {"T", rows},
        {"D", width},
        {"E", entries},
        {"R", isLatent ? pages * page : rows * entries},
        {"sources", rows * entries},
        {"places", pages * page},
        {"x_pitch", rows * width},
        {"rank", isLatent ? reference::usualRank(v, width) : 0},
        {"S", int64_t(1)},
        {"P", pages},
        {"page", page}})
    if (name == size)
      return value;
  return width; // strides
}

int64_t BenchRows::elements(const Arg &tensor) const {
  return product(tensor.shape);
}

/// Rows pick each other in order. Of latent they are positions of one slot.
std::vector<int64_t> BenchRows::integers(const Arg &tensor) const {
  int64_t count = elements(tensor);
  return tensor.name == "slots"
             ? std::vector<int64_t>(static_cast<size_t>(count))
             : countFrom(0, count);
}

reference::RowOperands BenchRows::operands(Patterns &patterns) const {
  reference::RowOperands o;
  o.op = v.rows;
  o.tokens = shape.allTokens();
  o.sources = v.rows == RowOp::Mix ? o.tokens : size("sources");
  if (v.rows == RowOp::Latent) {
    o.rank = size("rank");
    o.places = size("places");
    o.place = countFrom(0, o.tokens);
  }
  o.entries = size("E");
  o.width = shape.heads;
  for (const Arg &arg : kernelArgs(v))
    for (auto [name, rows] : {std::pair("x", &o.x),
                              {"branch", &o.branch},
                              {"weight", &o.weight},
                              {"gate", &o.gate},
                              {"up", &o.up},
                              {"query", &o.query},
                              {"scales", &o.scales}})
      if (arg.name == name) {
        int64_t width = arg.shape == "[rank]"  ? o.rank
                        : arg.name == "scales" ? o.entries
                                               : o.width;
        *rows = rowsOf(patterns.of(v, arg), width, width);
      }
  o.eps = scale("eps");
  o.beta = scale("beta");
  o.linear = scale("linear");
  return o;
}

} // namespace kdac::selftest
