#include "kdac/Pack/SizeExpr.h"

#include <algorithm>
#include <limits>

namespace kdac {

namespace {

constexpr int64_t limit = std::numeric_limits<int64_t>::max();
/// Deeper nesting is refused: text from a file must not exhaust the stack.
constexpr int maxDepth = 32;

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         isDigit(c);
}

/// Recursive descent over the grammar of SizeExpr.h, evaluating as it reads.
/// After the first error every method returns 0.
class Evaluator {
public:
  Evaluator(std::string_view text, const SizeBindings &bindings)
      : text(text), bindings(bindings) {}

  StatusOr<int64_t> run() {
    int64_t value = sum();
    if (peek() != '\0')
      fail("unexpected character at position " + std::to_string(pos));
    if (!status.ok())
      return status;
    return value;
  }

private:
  int64_t sum() {
    int64_t value = product();
    while (take('+')) {
      int64_t other = product();
      if (other > limit - value)
        return fail("its value exceeds 64 bits");
      value += other;
    }
    return value;
  }

  int64_t product() {
    int64_t value = factor();
    while (take('*')) {
      int64_t other = factor();
      if (other != 0 && value > limit / other)
        return fail("its value exceeds 64 bits");
      value *= other;
    }
    return value;
  }

  int64_t factor() {
    if (++depth > maxDepth)
      return fail("it nests deeper than " + std::to_string(maxDepth));
    int64_t value = 0;
    if (take('('))
      value = closed(sum());
    else if (isDigit(peek()))
      value = integer();
    else if (isNameChar(peek()))
      value = named();
    else
      fail("expected a number, a name or '(' at position " +
           std::to_string(pos));
    --depth;
    return value;
  }

  int64_t integer() {
    int64_t value = 0;
    while (pos < text.size() && isDigit(text[pos])) {
      int64_t digit = text[pos++] - '0';
      if (value > (limit - digit) / 10)
        return fail("a number exceeds 64 bits");
      value = value * 10 + digit;
    }
    return value;
  }

  int64_t named() {
    size_t begin = pos;
    while (pos < text.size() && isNameChar(text[pos]))
      ++pos;
    std::string_view name = text.substr(begin, pos - begin);
    if (take('('))
      return call(name);
    for (const auto &[bound, value] : bindings)
      if (bound == name)
        return value >= 0 ? value
                          : fail(std::string(name) + " = " +
                                 std::to_string(value) + " is negative");
    return fail("unknown name '" + std::string(name) + "'");
  }

  int64_t call(std::string_view function) {
    int64_t a = sum();
    if (!take(','))
      return fail("expected ',' at position " + std::to_string(pos));
    int64_t b = closed(sum());
    if (!status.ok())
      return 0;
    if (function == "min")
      return std::min(a, b);
    if (function == "max")
      return std::max(a, b);
    if (function == "less")
      return a < b ? 1 : 0;
    if (function == "minus")
      return std::max<int64_t>(0, a - b);
    if (function != "ceildiv")
      return fail("unknown function '" + std::string(function) + "'");
    if (b == 0)
      return fail("it divides by zero");
    return a / b + (a % b != 0);
  }

  int64_t closed(int64_t value) {
    if (!take(')'))
      return fail("expected ')' at position " + std::to_string(pos));
    return value;
  }

  char peek() {
    while (pos < text.size() && text[pos] == ' ')
      ++pos;
    return pos < text.size() ? text[pos] : '\0';
  }
  bool take(char c) {
    // After an error nothing matches, so that every loop above ends.
    if (!status.ok() || peek() != c)
      return false;
    ++pos;
    return true;
  }
  int64_t fail(const std::string &reason) {
    if (status.ok())
      status = Status(ErrorCode::InvalidArgument,
                      "size expression '" + std::string(text) + "': " + reason);
    return 0;
  }

  std::string_view text;
  const SizeBindings &bindings;
  size_t pos = 0;
  int depth = 0;
  Status status;
};

} // namespace

StatusOr<int64_t> evaluateSize(std::string_view text,
                               const SizeBindings &bindings) {
  return Evaluator(text, bindings).run();
}

Status bindSizes(const NamedSizes &sizes, SizeBindings &bindings) {
  for (const auto &[name, text] : sizes) {
    StatusOr<int64_t> value = evaluateSize(text, bindings);
    if (!value.ok())
      return value.status();
    bindings.emplace_back(name, *value);
  }
  return Status::success();
}

Status checkSizeExpr(std::string_view text,
                     const std::vector<std::string_view> &names) {
  SizeBindings ones;
  for (std::string_view name : names)
    ones.emplace_back(name, 1);
  return evaluateSize(text, ones).status();
}

} // namespace kdac
