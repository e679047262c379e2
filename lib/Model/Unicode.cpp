#include "Unicode.h"

#include <algorithm>

namespace kdac::model {

namespace {

const CategoryRange *find(const std::vector<CategoryRange> &ranges,
                          uint32_t code) {
  auto it = std::upper_bound(
      ranges.begin(), ranges.end(), code,
      [](uint32_t code, const CategoryRange &r) { return code < r.begin; });
  return it != ranges.begin() && code <= (it - 1)->end ? &*(it - 1) : nullptr;
}

uint8_t byteAt(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
}

/// Bytes that a code point with this first byte has; 0: it cannot be first.
size_t lengthOf(uint8_t first) {
  if (first < 0x80)
    return 1;
  if (first >= 0xc2 && first < 0xe0)
    return 2;
  if (first >= 0xe0 && first < 0xf0)
    return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

} // namespace

Category categoryOf(uint32_t code) {
  const CategoryRange *range = find(categoryRanges(), code);
  return range ? range->category : Category::Other;
}

bool isHan(uint32_t code) { return find(hanRanges(), code) != nullptr; }

bool isSpace(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

Decoded decodeUtf8(std::string_view text, size_t at) {
  constexpr Decoded invalid = {0xfffd, 1};
  if (at >= text.size())
    return {0xfffd, 0};
  uint8_t first = byteAt(text, at);
  size_t length = lengthOf(first);
  if (length == 1)
    return {first, 1};
  if (length == 0 || at + length > text.size())
    return invalid;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    uint8_t next = byteAt(text, at + i);
    if ((next & 0xc0) != 0x80)
      return invalid;
    code = code << 6 | (next & 0x3fu);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  bool isSurrogate = code >= 0xd800 && code < 0xe000;
  return code < least[length] || code > 0x10ffff || isSurrogate
             ? invalid
             : Decoded{code, length};
}

size_t incompleteTail(std::string_view bytes) {
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    uint8_t byte = byteAt(bytes, bytes.size() - back);
    if ((byte & 0xc0) == 0x80)
      continue;
    return lengthOf(byte) > back ? back : 0;
  }
  return 0;
}

} // namespace kdac::model
