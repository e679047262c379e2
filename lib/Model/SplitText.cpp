// The Kimi split pattern by hand: eight alternatives, tried in order, each with
// the backtracking that a regular expression would do. hybrid-model.md 6.2.
#include "Unicode.h"
#include "kdac/Model/Tokenizer.h"

#include <initializer_list>

namespace kdac::model {

namespace {

/// One code point of the text and what the pattern asks about it.
struct Glyph {
  size_t begin; ///< in bytes
  uint32_t code;
  Category category;
  bool isHan, isSpace;

  bool isLetter() const {
    return category == Category::Upper || category == Category::Lower ||
           category == Category::OtherLetter;
  }
  bool isNumber() const { return category == Category::Number; }
  bool isShared() const { // in both of the following
    return !isHan &&
           (category == Category::OtherLetter || category == Category::Mark);
  }
  bool isUpper() const {
    return isShared() || (!isHan && category == Category::Upper);
  }
  bool isLower() const {
    return isShared() || (!isHan && category == Category::Lower);
  }
  bool isPrefix() const {
    return !isNewline(code) && !isLetter() && !isNumber();
  }
  bool isSymbol() const { return !isSpace && !isLetter() && !isNumber(); }
};

/// Matches at glyph `i` return the glyph behind the match, or `i` for none.
class Splitter {
public:
  explicit Splitter(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      Decoded d = decodeUtf8(text, at);
      glyphs.push_back({at, d.code, categoryOf(d.code), model::isHan(d.code),
                        model::isSpace(d.code)});
      at += d.bytes;
    }
    size = glyphs.size();
  }

  std::vector<std::string_view> split(std::string_view text) const {
    std::vector<std::string_view> pieces;
    for (size_t i = 0; i < size;) {
      size_t end = match(i);
      size_t from = glyphs[i].begin;
      size_t to = end < size ? glyphs[end].begin : text.size();
      pieces.push_back(text.substr(from, to - from));
      i = end;
    }
    return pieces;
  }

private:
  template <typename Is> size_t run(size_t i, Is is) const {
    while (i < size && (glyphs[i].*is)())
      ++i;
    return i;
  }

  size_t match(size_t i) const {
    if (size_t end = han(i); end != i)
      return end;
    if (size_t end = word(i, &Splitter::lowerWord); end != i)
      return end;
    if (size_t end = word(i, &Splitter::upperWord); end != i)
      return end;
    if (size_t end = number(i); end != i)
      return end;
    if (size_t end = symbols(i); end != i)
      return end;
    return space(i);
  }

  size_t han(size_t i) const {
    while (i < size && glyphs[i].isHan)
      ++i;
    return i;
  }

  /// U* W+: where no W follows the run of U, the run gives characters back
  /// until one of them is a W.
  size_t lowerWord(size_t i) const {
    size_t upper = run(i, &Glyph::isUpper);
    if (size_t lower = run(upper, &Glyph::isLower); lower != upper)
      return lower;
    for (size_t end = upper; end > i; --end)
      if (glyphs[end - 1].isLower())
        return end;
    return i;
  }

  /// U+ W*.
  size_t upperWord(size_t i) const {
    size_t upper = run(i, &Glyph::isUpper);
    return upper == i ? i : run(upper, &Glyph::isLower);
  }

  /// P? word C?: with a prefix where that works, else without.
  size_t word(size_t i, size_t (Splitter::*body)(size_t) const) const {
    if (i < size && glyphs[i].isPrefix())
      if (size_t end = (this->*body)(i + 1); end != i + 1)
        return contraction(end);
    size_t end = (this->*body)(i);
    return end == i ? i : contraction(end);
  }

  /// 's 't 're 've 'm 'll 'd in either case.
  size_t contraction(size_t i) const {
    auto letter = [&](size_t at) -> uint32_t {
      if (at >= size)
        return 0;
      uint32_t code = glyphs[at].code;
      if (code == 0x17f) // the long s folds to s
        return 's';
      return code >= 'A' && code <= 'Z' ? code + 32 : code;
    };
    if (letter(i) != '\'')
      return i;
    uint32_t first = letter(i + 1), second = letter(i + 2);
    for (uint32_t one : {'s', 't', 'm', 'd'})
      if (first == one)
        return i + 2;
    bool isPair = (first == 'r' && second == 'e') ||
                  (first == 'v' && second == 'e') ||
                  (first == 'l' && second == 'l');
    return isPair ? i + 3 : i;
  }

  size_t number(size_t i) const {
    size_t end = i;
    while (end < size && end < i + 3 && glyphs[end].isNumber())
      ++end;
    return end;
  }

  size_t symbols(size_t i) const {
    size_t begin = i < size && glyphs[i].code == ' ' ? i + 1 : i;
    size_t end = run(begin, &Glyph::isSymbol);
    if (end == begin)
      return i;
    while (end < size && isNewline(glyphs[end].code))
      ++end;
    return end;
  }

  /// Alternatives 6 to 8: up to the last newline of the run; a run at the end;
  /// a run but for its last character; that character.
  size_t space(size_t i) const {
    size_t end = i;
    while (end < size && glyphs[end].isSpace)
      ++end;
    for (size_t last = end; last > i; --last)
      if (isNewline(glyphs[last - 1].code))
        return last;
    return end < size && end - i > 1 ? end - 1 : end;
  }

  std::vector<Glyph> glyphs;
  size_t size = 0;
};

} // namespace

std::vector<std::string_view> splitText(std::string_view text) {
  return Splitter(text).split(text);
}

} // namespace kdac::model
