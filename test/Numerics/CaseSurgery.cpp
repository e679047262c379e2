#include "CaseSurgery.h"

#include "gtest/gtest.h"

#include <cstring>

namespace kdac::reference {

bool isPerToken(const Buffer &buffer, const Case &c) {
  return buffer.name() != "offsets" && buffer.name() != "h0" &&
         buffer.name() != "ht" && buffer.layout().tokens == c.tokens();
}

const std::byte *rowOf(const Buffer &buffer, int64_t row) {
  return static_cast<const std::byte *>(buffer.data()) +
         buffer.layout().at(row, 0, 0) * dtypeSize(buffer.dtype());
}

std::byte *rowOf(Buffer &buffer, int64_t row) {
  return const_cast<std::byte *>(
      rowOf(static_cast<const Buffer &>(buffer), row));
}

size_t rowBytes(const Buffer &buffer) {
  return static_cast<size_t>(buffer.layout().rowElements() *
                             dtypeSize(buffer.dtype()));
}

void copyRows(const Buffer &from, int64_t first, Buffer &to, int64_t toFirst,
              int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(rowOf(to, toFirst + i), rowOf(from, first + i), rowBytes(from));
}

void copyTokens(const Case &from, int64_t first, Case &to, int64_t toFirst,
                int64_t count) {
  for (const Buffer &source : from.buffers()) {
    if (source.kind() != ArgKind::Input || source.name() == "offsets" ||
        source.name() == "h0")
      continue;
    Buffer &target = *to.find(source.name());
    if (isPerToken(source, from))
      copyRows(source, first, target, toFirst, count);
    else
      copyRows(source, 0, target, 0, source.layout().tokens);
  }
}

void expectSameRows(const Buffer &x, int64_t firstX, const Buffer &y,
                    int64_t firstY, int64_t count, const std::string &what) {
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(
        std::memcmp(rowOf(x, firstX + i), rowOf(y, firstY + i), rowBytes(x)), 0)
        << what << ": " << x.name() << " differs in row " << firstX + i;
}

void expectSameOutputs(const Case &x, const Case &y, const std::string &what) {
  expectSameRows(*x.find("out"), 0, *y.find("out"), 0, x.coveredTokens(), what);
  expectSameRows(*x.find("ht"), 0, *y.find("ht"), 0, x.sequences(), what);
}

} // namespace kdac::reference
