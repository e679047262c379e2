// Promises: what the split pattern asks about a code point. Does not: normalise
// or fold.
#ifndef KDAC_LIB_MODEL_UNICODE_H
#define KDAC_LIB_MODEL_UNICODE_H

#include <cstdint>
#include <string_view>
#include <vector>

namespace kdac::model {

/// General categories as the pattern groups them: Lu Lt | Ll | Lm Lo | M | N.
enum class Category : uint8_t {
  Other,
  Upper,
  Lower,
  OtherLetter,
  Mark,
  Number
};

struct CategoryRange {
  uint32_t begin, end; ///< both included
  Category category;
};

/// Sorted, disjoint; code points in none are Other.
const std::vector<CategoryRange> &categoryRanges();
/// The script Han; the categories mean nothing.
const std::vector<CategoryRange> &hanRanges();

Category categoryOf(uint32_t code);
bool isHan(uint32_t code);
bool isSpace(uint32_t code); ///< White_Space
inline bool isNewline(uint32_t code) { return code == '\r' || code == '\n'; }

/// A code point and the bytes it takes. A byte that begins no valid UTF-8 is
/// U+FFFD of one byte; at the end of the text: 0 bytes.
struct Decoded {
  uint32_t code;
  size_t bytes;
};
Decoded decodeUtf8(std::string_view text, size_t at);

/// How many bytes at the end of `bytes` may begin a code point that goes on.
size_t incompleteTail(std::string_view bytes);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_UNICODE_H
