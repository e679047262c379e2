#include "kdac/Model/Tokenizer.h"

#include "FileBytes.h"
#include "JsonFields.h"
#include "Unicode.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <unordered_map>

namespace kdac::model {

struct Tokenizer::State {
  std::vector<std::string> bytes;                 ///< by rank
  std::unordered_map<std::string, int32_t> ranks; ///< the same, inverted
  std::map<int32_t, std::string> names;           ///< of special tokens
  std::map<std::string, int32_t, std::less<>> specials;

  int32_t rank(std::string_view piece) const {
    auto it = ranks.find(std::string(piece));
    return it == ranks.end() ? -1 : it->second;
  }
  void name(int32_t token, const std::string &text) {
    names[token] = text;
    specials[text] = token;
  }
  void merge(std::string_view piece, std::vector<int32_t> &to) const;
};

namespace {

/// Special tokens of the 48B, relative to the number of base tokens.
/// hybrid-model.md 6.3.
struct SpecialRow {
  int32_t offset;
  const char *name;
};
constexpr SpecialRow specialTable[] = {{0, "[BOS]"},
                                       {1, "[EOS]"},
                                       {2, "<|im_end|>"},
                                       {3, "<|im_user|>"},
                                       {4, "<|im_assistant|>"},
                                       {6, "<|start_header_id|>"},
                                       {7, "<|end_header_id|>"},
                                       {9, "[EOT]"},
                                       {10, "<|im_system|>"},
                                       {11, "<|tool_calls_section_begin|>"},
                                       {12, "<|tool_calls_section_end|>"},
                                       {13, "<|tool_call_begin|>"},
                                       {14, "<|tool_call_argument_begin|>"},
                                       {15, "<|tool_call_end|>"},
                                       {17, "<|im_middle|>"},
                                       {22, "<think>"},
                                       {23, "</think>"},
                                       {254, "[UNK]"},
                                       {255, "[PAD]"}};

int valueOf(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// Base64 with padding; false where it is none.
bool decodeBase64(std::string_view text, std::string &to) {
  if (text.empty() || text.size() % 4 != 0)
    return false;
  size_t padding = text[text.size() - 1] != '='   ? 0
                   : text[text.size() - 2] != '=' ? 1
                                                  : 2;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = i >= text.size() - padding ? 0 : valueOf(text[i]);
    if (value < 0)
      return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 3)
      for (int shift : {16, 8, 0})
        to += static_cast<char>(bits >> shift & 255);
  }
  to.resize(to.size() - padding);
  return !to.empty();
}

/// "base64 rank", where ranks count from 0.
bool readLine(std::string_view line, int64_t rank, std::string &bytes) {
  size_t space = line.find(' ');
  return space != std::string_view::npos &&
         decodeBase64(line.substr(0, space), bytes) &&
         line.substr(space + 1) == std::to_string(rank);
}

/// A pair of neighbours that may become one token.
struct Pair {
  int32_t rank;
  size_t left, right, end; ///< where the pieces begin, and the right one's end

  bool operator>(const Pair &o) const {
    return rank != o.rank ? rank > o.rank : left > o.left;
  }
};

} // namespace

/// Merges the neighbours of lowest rank, the leftmost of equals, until no
/// neighbours are a token together.
void Tokenizer::State::merge(std::string_view piece,
                             std::vector<int32_t> &to) const {
  size_t size = piece.size();
  std::vector<size_t> next(size + 1), previous(size + 1); // by first byte
  std::vector<bool> isStart(size + 1, true);
  for (size_t i = 0; i <= size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  std::priority_queue<Pair, std::vector<Pair>, std::greater<Pair>> queue;
  auto offer = [&](size_t left) {
    size_t right = next[left];
    if (right >= size)
      return;
    size_t end = next[right];
    if (int32_t r = rank(piece.substr(left, end - left)); r >= 0)
      queue.push({r, left, right, end});
  };
  for (size_t i = 0; i + 1 < size; ++i)
    offer(i);
  while (!queue.empty()) {
    Pair best = queue.top();
    queue.pop();
    bool isCurrent = isStart[best.left] && isStart[best.right] &&
                     next[best.left] == best.right &&
                     next[best.right] == best.end;
    if (!isCurrent)
      continue;
    isStart[best.right] = false;
    next[best.left] = best.end;
    previous[best.end] = best.left;
    offer(best.left);
    if (best.left > 0)
      offer(previous[best.left]);
  }
  for (size_t i = 0; i < size; i = next[i])
    to.push_back(rank(piece.substr(i, next[i] - i)));
}

StatusOr<Tokenizer> Tokenizer::fromRanks(std::string_view text,
                                         const std::string &name) {
  auto state = std::make_shared<State>();
  int64_t rank = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    if (line.empty())
      continue;
    std::string bytes;
    if (rank >= 1 << 24 || !readLine(line, rank, bytes) ||
        !state->ranks.emplace(bytes, static_cast<int32_t>(rank)).second)
      return Status(ErrorCode::Corrupt,
                    name + ": line " + std::to_string(rank + 1) +
                        " is not a new token in base64 and the rank " +
                        std::to_string(rank));
    state->bytes.push_back(std::move(bytes));
    ++rank;
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!state->ranks.count(std::string(1, static_cast<char>(byte))))
      return Status(ErrorCode::Corrupt, name + " has no token for the byte " +
                                            std::to_string(byte));
  for (const SpecialRow &row : specialTable)
    state->name(static_cast<int32_t>(rank) + row.offset, row.name);
  return Tokenizer(std::move(state));
}

/// Names of added_tokens_decoder in a tokenizer_config.json.
static StatusOr<std::map<int32_t, std::string>>
readNames(const std::string &path, int64_t baseTokens) {
  StatusOr<std::string> text = readWholeFile(path, 64 << 20);
  if (!text.ok())
    return text.status();
  StatusOr<nlohmann::json> root = parseJson(*text, path);
  if (!root.ok())
    return root.status();
  std::map<int32_t, std::string> names;
  Status status;
  JsonFields fields(*root, path, status);
  const nlohmann::json *added = fields.find("added_tokens_decoder");
  if (!status.ok() || (added && !added->is_object()))
    return Status(ErrorCode::Corrupt, path + " describes no tokens");
  for (auto it = added ? added->begin() : nlohmann::json::const_iterator();
       added && it != added->end(); ++it) {
    bool isNumber =
        !it.key().empty() && it.key().size() < 9 &&
        it.key().find_first_not_of("0123456789") == std::string::npos;
    int64_t token = isNumber ? std::stol(it.key()) : -1;
    JsonFields entry(*it, path + ": token " + it.key(), status);
    std::string content = entry.text("content", "");
    if (token < baseTokens || !status.ok() || content.empty())
      return Status(ErrorCode::Corrupt,
                    path + ": token " + it.key() +
                        " is not a named token behind the " +
                        std::to_string(baseTokens) + " base tokens");
    names[static_cast<int32_t>(token)] = content;
  }
  return names;
}

StatusOr<Tokenizer> Tokenizer::open(const std::string &folder) {
  std::string path = folder + "/tiktoken.model";
  StatusOr<std::string> text = readWholeFile(path, 256 << 20);
  if (!text.ok())
    return text.status();
  StatusOr<Tokenizer> tokenizer = fromRanks(*text, path);
  std::string config = folder + "/tokenizer_config.json";
  if (!tokenizer.ok() || !exists(config))
    return tokenizer;
  StatusOr<std::map<int32_t, std::string>> names =
      readNames(config, tokenizer->baseTokens());
  if (!names.ok())
    return names.status();
  if (names->empty())
    return tokenizer;
  auto state = std::make_shared<State>(*tokenizer->state);
  state->names.clear();
  state->specials.clear();
  for (const auto &[token, name] : *names)
    state->name(token, name);
  return Tokenizer(std::move(state));
}

int64_t Tokenizer::baseTokens() const {
  return static_cast<int64_t>(state->bytes.size());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  for (std::string_view piece : splitText(text)) {
    if (int32_t whole = state->rank(piece); whole >= 0)
      tokens.push_back(whole);
    else
      state->merge(piece, tokens);
  }
  return tokens;
}

std::vector<int32_t>
Tokenizer::encodeWithSpecials(std::string_view text) const {
  std::vector<int32_t> tokens;
  size_t begin = 0; // of what is not encoded yet
  auto flush = [&](size_t end) {
    std::vector<int32_t> some = encode(text.substr(begin, end - begin));
    tokens.insert(tokens.end(), some.begin(), some.end());
  };
  for (size_t at = 0; at < text.size();) {
    const std::pair<const std::string, int32_t> *longest = nullptr;
    if (text[at] == '<' || text[at] == '[')
      for (const auto &entry : state->specials)
        if (text.substr(at, entry.first.size()) == entry.first &&
            (!longest || entry.first.size() > longest->first.size()))
          longest = &entry;
    if (!longest) {
      ++at;
      continue;
    }
    flush(at);
    tokens.push_back(longest->second);
    begin = at += longest->first.size();
  }
  flush(text.size());
  return tokens;
}

std::string Tokenizer::bytesOf(int32_t token) const {
  if (token >= 0 && token < baseTokens())
    return state->bytes[static_cast<size_t>(token)];
  auto it = state->names.find(token);
  return it == state->names.end()
             ? "<|reserved_token_" + std::to_string(token) + "|>"
             : it->second;
}

int32_t Tokenizer::special(std::string_view name) const {
  auto it = state->specials.find(name);
  return it == state->specials.end() ? -1 : it->second;
}

StatusOr<std::vector<int32_t>>
Tokenizer::encodeChat(const std::vector<Message> &messages) const {
  int32_t middle = special("<|im_middle|>"), end = special("<|im_end|>");
  int32_t user = special("<|im_user|>"), system = special("<|im_system|>");
  int32_t assistant = special("<|im_assistant|>");
  if (std::min({middle, end, user, system, assistant}) < 0)
    return Status(ErrorCode::Unsupported,
                  "the tokenizer lacks the special tokens of the chat template "
                  "(<|im_user|>, <|im_middle|>, ...); use --prompt");
  std::vector<int32_t> tokens;
  auto text = [&](std::string_view words) {
    std::vector<int32_t> some = encode(words);
    tokens.insert(tokens.end(), some.begin(), some.end());
  };
  for (const Message &message : messages) {
    tokens.push_back(message.role == "user"        ? user
                     : message.role == "assistant" ? assistant
                                                   : system);
    text(message.role);
    tokens.push_back(middle);
    text(message.content);
    tokens.push_back(end);
  }
  tokens.push_back(assistant);
  text("assistant");
  tokens.push_back(middle);
  return tokens;
}

std::string TextStream::add(int32_t token) {
  pending += tokenizer.bytesOf(token);
  size_t complete = pending.size() - incompleteTail(pending);
  std::string text = pending.substr(0, complete);
  pending.erase(0, complete);
  return text;
}

std::string TextStream::rest() { return std::exchange(pending, {}); }

} // namespace kdac::model
