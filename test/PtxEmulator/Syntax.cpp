#include "Syntax.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <set>

namespace kdac::ptx {

unsigned bytesOfType(std::string_view t) {
  static const std::map<std::string_view, unsigned> sizes = {
      {"b8", 1},  {"u8", 1},  {"s8", 1},    {"b16", 2},    {"u16", 2},
      {"s16", 2}, {"f16", 2}, {"bf16", 2},  {"b32", 4},    {"u32", 4},
      {"s32", 4}, {"f32", 4}, {"f16x2", 4}, {"bf16x2", 4}, {"tf32", 4},
      {"b64", 8}, {"u64", 8}, {"s64", 8},   {"f64", 8},    {"b128", 16}};
  auto it = sizes.find(t);
  return it == sizes.end() ? 0 : it->second;
}

namespace {

struct Token {
  std::string text;
  int line;
  size_t at; ///< position in the source
};

bool isWordStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
         c == '%' || c == '.';
}
bool isWord(char c) {
  return isWordStart(c) || std::isdigit(static_cast<unsigned char>(c));
}

/// Words (with their dots and double colons), numbers, strings, and single
/// characters.
class Lexer {
public:
  explicit Lexer(std::string_view text) : text(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    while (skipSpace(), at < text.size() && text[at] != '\0') {
      size_t begin = at;
      char c = text[at];
      if (isWordStart(c))
        word();
      else if (std::isdigit(static_cast<unsigned char>(c)))
        number();
      else if (c == '"')
        quoted();
      else
        ++at;
      tokens.push_back(
          {std::string(text.substr(begin, at - begin)), line, begin});
    }
    tokens.push_back({"", line, at});
    return tokens;
  }

private:
  void skipSpace() {
    for (; at < text.size(); ++at) {
      if (text[at] == '\n')
        ++line;
      else if (text.substr(at, 2) == "//")
        at = std::min(text.find('\n', at), text.size()) - 1;
      else if (text.substr(at, 2) == "/*")
        comment();
      else if (!std::isspace(static_cast<unsigned char>(text[at])))
        return;
    }
  }
  void comment() {
    size_t end = std::min(text.find("*/", at), text.size() - 2) + 1;
    line += static_cast<int>(
        std::count(text.begin() + at, text.begin() + end, '\n'));
    at = end;
  }
  void word() {
    for (++at; at < text.size(); ++at)
      if (text.substr(at, 2) == "::")
        ++at;
      else if (!isWord(text[at]))
        return;
  }
  void number() {
    while (
        at < text.size() &&
        (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '.'))
      ++at;
  }
  void quoted() {
    for (++at; at < text.size() && text[at] != '"';)
      ++at;
    ++at;
  }

  std::string_view text;
  size_t at = 0;
  int line = 1;
};

std::vector<std::string> splitDots(const std::string &word) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t i = 0; i <= word.size(); ++i)
    if (i == word.size() || word[i] == '.') {
      parts.push_back(word.substr(begin, i - begin));
      begin = i + 1;
    }
  return parts;
}

bool parseNumber(const std::string &s, Operand &op) {
  bool zero = s.size() > 2 && s[0] == '0';
  if (zero && (s[1] == 'f' || s[1] == 'F') && s.size() == 10) {
    op.kind = Operand::Float;
    op.value = static_cast<int64_t>(std::strtoull(s.c_str() + 2, nullptr, 16));
    return true;
  }
  if (zero && (s[1] == 'd' || s[1] == 'D') && s.size() == 18) {
    op.kind = Operand::Double;
    op.value = static_cast<int64_t>(std::strtoull(s.c_str() + 2, nullptr, 16));
    return true;
  }
  char *end = nullptr;
  bool hex = zero && (s[1] == 'x' || s[1] == 'X');
  if (!hex && s.find('.') != std::string::npos) {
    double value = std::strtod(s.c_str(), &end);
    op.kind = Operand::Double;
    std::memcpy(&op.value, &value, sizeof value);
    return *end == '\0';
  }
  op.kind = Operand::Integer;
  op.value = static_cast<int64_t>(std::strtoull(s.c_str(), &end, 0));
  return *end == '\0' || ((*end == 'U' || *end == 'u') && end[1] == '\0');
}

class Parser {
public:
  Parser(std::string_view text, ModuleSyntax &module, std::string &error)
      : source(text), tokens(Lexer(text).run()), module(module), error(error) {}

  bool run() {
    while (error.empty() && !peek().empty())
      if (!topLevel())
        break;
    return error.empty();
  }

private:
  const std::string &peek(size_t ahead = 0) const {
    return tokens[std::min(next + ahead, tokens.size() - 1)].text;
  }
  std::string take() {
    std::string text = peek();
    if (next + 1 < tokens.size())
      ++next;
    return text;
  }
  bool accept(const char *text) {
    if (peek() != text)
      return false;
    take();
    return true;
  }
  bool fail(const std::string &what) {
    if (error.empty())
      error = "line " + std::to_string(tokens[next].line) + ": " + what;
    return false;
  }
  bool expect(const char *text) {
    return accept(text) || fail(std::string("expected '") + text +
                                "', but got '" + peek() + "'");
  }
  /// Passes the rest of the line that the token before `next` is on.
  void skipLine() {
    int line = tokens[next - 1].line;
    while (!peek().empty() && tokens[next].line == line)
      take();
  }
  int64_t integer() {
    bool minus = accept("-");
    Operand op;
    if (!parseNumber(take(), op) || op.kind != Operand::Integer)
      fail("expected an integer");
    return minus ? -op.value : op.value;
  }

  bool topLevel() {
    std::string word = take();
    if (word == ".version" || word == ".file" || word == ".address_size") {
      skipLine();
      return true;
    }
    if (word == ".target") {
      module.target = peek();
      skipLine();
      return true;
    }
    if (word == ".visible" || word == ".extern" || word == ".weak")
      return true;
    if (word == ".entry")
      return entry();
    if (word == ".global" || word == ".const" || word == ".shared")
      return variable(word.substr(1), module.variables);
    return fail("'" + word + "' at module level is not supported");
  }

  /// The rest of a declaration of a variable in memory, after its space.
  bool variable(const std::string &space, std::vector<Variable> &into) {
    Variable v;
    if (!declarator(space, v))
      return false;
    if (accept("=") && !initial(v))
      return false;
    into.push_back(v);
    return expect(";");
  }

  bool declarator(const std::string &space, Variable &v) {
    v.space = space;
    unsigned element = 0;
    bool aligned = false;
    for (;;) {
      std::string word = take();
      if (word == ".align") {
        v.align = static_cast<uint32_t>(integer());
        aligned = true;
      } else if (word == ".ptr") {
        skipPointerInfo();
      } else if (word[0] == '.' && bytesOfType(word.substr(1))) {
        v.type = word.substr(1);
        element = bytesOfType(v.type);
      } else if (word[0] != '.' && !word.empty()) {
        v.name = word;
        break;
      } else {
        return fail("'" + word + "' in a declaration is not supported");
      }
    }
    if (!aligned)
      v.align = element;
    v.bytes = element;
    while (accept("[")) {
      v.bytes *= peek() == "]" ? 0 : static_cast<uint32_t>(integer());
      if (!expect("]"))
        return false;
    }
    return true;
  }
  void skipPointerInfo() {
    while (peek() == ".global" || peek() == ".shared" || peek() == ".const" ||
           peek() == ".local")
      take();
    if (accept(".align"))
      integer();
  }

  bool initial(Variable &v) {
    unsigned element = bytesOfType(v.type);
    auto put = [&]() -> bool {
      bool minus = accept("-");
      Operand op;
      if (!parseNumber(take(), op))
        return fail("this initial value is not supported");
      int64_t value = minus ? -op.value : op.value;
      for (unsigned i = 0; i < element; ++i)
        v.data.push_back(static_cast<uint8_t>(value >> (8 * (i % 8))));
      return true;
    };
    if (!accept("{"))
      return put();
    while (!accept("}")) {
      if (!put())
        return false;
      accept(",");
    }
    return true;
  }

  bool entry() {
    module.entries.emplace_back();
    current = &module.entries.back();
    current->name = take();
    scopes.assign(1, 0);
    if (accept("("))
      while (!accept(")")) {
        Variable v;
        if (!expect(".param") || !declarator("param", v))
          return false;
        current->params.push_back(v);
        accept(",");
      }
    while (peek() != "{")
      if (!directive())
        return false;
    take();
    return body() && resolve();
  }

  bool directive() {
    std::string word = take();
    if (word == ".reqntid" || word == ".reqnctapercluster") {
      unsigned *to = word == ".reqntid" ? current->reqntid : current->cluster;
      to[0] = to[1] = to[2] = 1;
      *to++ = static_cast<unsigned>(integer());
      while (accept(","))
        *to++ = static_cast<unsigned>(integer());
      return true;
    }
    if (word == ".maxntid" || word == ".minnctapersm" || word == ".maxnreg" ||
        word == ".maxnctapersm") {
      integer();
      while (accept(","))
        integer();
      return true;
    }
    if (word == ".pragma")
      return take(), expect(";");
    if (word == ".explicitcluster")
      return current->explicitCluster = true;
    if (word == ".noreturn")
      return true;
    return fail("'" + word + "' is not supported");
  }

  bool body() {
    for (size_t depth = scopes.size(); error.empty();) {
      if (accept("{")) {
        scopes.push_back(++scopeCount);
        continue;
      }
      if (accept("}")) {
        if (scopes.size() == depth)
          return true;
        scopes.pop_back();
        continue;
      }
      if (peek().empty())
        return fail("the body does not end");
      statement();
    }
    return false;
  }

  bool statement() {
    const std::string &word = peek();
    if (accept(";"))
      return true;
    if (word == ".loc" || word == ".file")
      return take(), skipLine(), true;
    if (word == ".pragma")
      return take(), take(), expect(";");
    if (word == ".reg")
      return take(), registers();
    if (word == ".shared" || word == ".local") {
      std::string space = take().substr(1);
      return variable(space, current->variables);
    }
    if (peek(1) == ":") {
      std::string name = unique(take());
      take();
      if (!current->labels.emplace(name, static_cast<int>(current->body.size()))
               .second)
        return fail("label " + name + " is defined twice");
      return true;
    }
    return instruction();
  }

  /// A name declared in the innermost scope.
  std::string unique(const std::string &name) const {
    return scopes.size() == 1 ? name
                              : name + "@" + std::to_string(scopes.back());
  }

  bool registers() {
    std::string type = take().substr(1);
    unsigned bits = type == "pred" ? 1 : 8 * bytesOfType(type);
    if (bits == 0 || bits > 64)
      return fail("registers of type ." + type + " are not supported");
    do {
      std::string name = take();
      if (!accept("<")) {
        current->registers[unique(name)] = bits;
        continue;
      }
      int64_t count = integer();
      for (int64_t i = 0; i < count; ++i)
        current->registers[unique(name + std::to_string(i))] = bits;
      if (!expect(">"))
        return false;
    } while (accept(","));
    return expect(";");
  }

  bool instruction() {
    Statement s;
    s.line = tokens[next].line;
    size_t begin = tokens[next].at;
    if (accept("@")) {
      s.guardNegated = accept("!");
      s.guard = take();
    }
    std::vector<std::string> parts = splitDots(take());
    s.opcode = parts.front();
    s.mods.assign(parts.begin() + 1, parts.end());
    while (error.empty() && peek() != ";") {
      s.operands.emplace_back();
      if (!operand(s.operands.back()))
        return false;
      if (!accept(",") && peek() != ";")
        return fail("expected ',' or ';', but got '" + peek() + "' in " +
                    s.opcode);
    }
    s.text = std::string(source.substr(begin, tokens[next].at - begin));
    take();
    scopeOf.push_back(scopes);
    current->body.push_back(std::move(s));
    return true;
  }

  bool operand(Operand &op) {
    if (!simple(op))
      return false;
    if (!accept("|"))
      return true;
    Operand first = op;
    op = Operand();
    op.kind = Operand::Pair;
    op.parts.resize(2);
    op.parts[0] = first;
    return simple(op.parts[1]);
  }

  bool simple(Operand &op) {
    if (accept("{"))
      return list(op);
    if (accept("["))
      return address(op);
    op.negated = accept("!");
    bool minus = accept("-");
    std::string word = take();
    if (word == "_") {
      op.kind = Operand::Sink;
      return true;
    }
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      if (!parseNumber(word, op))
        return fail("'" + word + "' is no number");
      if (minus && op.kind == Operand::Double)
        op.value ^= INT64_MIN;
      else if (minus)
        op.value = -op.value;
      return true;
    }
    op.kind = Operand::Name;
    op.name = word;
    return isWordStart(word[0]) || fail("unexpected '" + word + "'");
  }

  bool list(Operand &op) {
    op.kind = Operand::List;
    while (!accept("}")) {
      op.parts.emplace_back();
      if (!simple(op.parts.back()))
        return false;
      if (!accept(",") && peek() != "}")
        return fail("expected ',' or '}'");
    }
    return true;
  }

  bool address(Operand &op) {
    op.kind = Operand::Address;
    if (std::isdigit(static_cast<unsigned char>(peek()[0])))
      op.value = integer();
    else
      op.name = take();
    if (accept("+"))
      op.value += integer();
    else if (peek() == "-")
      op.value += integer();
    while (accept(",")) {
      op.parts.emplace_back();
      if (!simple(op.parts.back()))
        return false;
    }
    return expect("]");
  }

  /// Names of inner scopes become unique ones.
  bool resolve() {
    for (size_t i = 0; i < current->body.size(); ++i) {
      Statement &s = current->body[i];
      if (!s.guard.empty())
        s.guard = innermost(s.guard, scopeOf[i]);
      for (Operand &op : s.operands)
        rename(op, scopeOf[i]);
    }
    scopeOf.clear();
    return true;
  }
  void rename(Operand &op, const std::vector<int> &scopes) {
    if (!op.name.empty())
      op.name = innermost(op.name, scopes);
    for (Operand &part : op.parts)
      rename(part, scopes);
  }
  std::string innermost(const std::string &name,
                        const std::vector<int> &scopes) const {
    for (size_t i = scopes.size(); i-- > 1;) {
      std::string candidate = name + "@" + std::to_string(scopes[i]);
      if (current->registers.count(candidate) ||
          current->labels.count(candidate))
        return candidate;
    }
    return name;
  }

  std::string_view source;
  std::vector<Token> tokens;
  size_t next = 0;
  ModuleSyntax &module;
  std::string &error;
  EntrySyntax *current = nullptr;
  std::vector<int> scopes; ///< from the body's inwards
  int scopeCount = 0;
  std::vector<std::vector<int>> scopeOf; ///< of each statement
};

} // namespace

bool parseSyntax(std::string_view text, ModuleSyntax &module,
                 std::string &error) {
  return Parser(text, module, error).run();
}

} // namespace kdac::ptx
