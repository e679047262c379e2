// Promises: text to tokens and back, as Kimi models do it: tiktoken ranks, the
// Kimi split pattern, special tokens, the chat template of the 48B. Does not:
// normalise text or run regular expressions.
#ifndef KDAC_MODEL_TOKENIZER_H
#define KDAC_MODEL_TOKENIZER_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kdac::model {

/// The pieces that bytes are merged in, in order; together they are the text.
/// hybrid-model.md 6.2.
std::vector<std::string_view> splitText(std::string_view text);

/// One message of a conversation.
struct Message {
  std::string role; ///< user, assistant, or anything else: system
  std::string content;
};

class Tokenizer {
public:
  /// Reads tiktoken.model of a model folder, and the names of special tokens
  /// from tokenizer_config.json if that exists; else they are those of the 48B.
  static StatusOr<Tokenizer> open(const std::string &folder);
  /// The same from the text of tiktoken.model; `name` is for errors.
  static StatusOr<Tokenizer> fromRanks(std::string_view text,
                                       const std::string &name);

  /// Base tokens; special ones follow.
  int64_t baseTokens() const;
  /// The tokens of a text in which special tokens are ordinary characters.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The same, but names of special tokens become these.
  std::vector<int32_t> encodeWithSpecials(std::string_view text) const;
  /// The bytes of a token; "<|reserved_token_N|>" of an unnamed special one.
  std::string bytesOf(int32_t token) const;
  /// The special token called `name`, or -1.
  int32_t special(std::string_view name) const;

  /// The conversation, followed by what makes the model answer. Contents cannot
  /// forge special tokens. hybrid-model.md 6.4.
  StatusOr<std::vector<int32_t>>
  encodeChat(const std::vector<Message> &messages) const;

private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state)
      : state(std::move(state)) {}
  std::shared_ptr<const State> state;
};

/// Tokens of one sequence as text that is printed as it grows: bytes of an
/// unfinished code point wait for the rest.
class TextStream {
public:
  explicit TextStream(const Tokenizer &tokenizer) : tokenizer(tokenizer) {}
  /// The text that is complete with this token.
  std::string add(int32_t token);
  /// What is left at the end.
  std::string rest();

private:
  const Tokenizer &tokenizer;
  std::string pending;
};

} // namespace kdac::model

#endif // KDAC_MODEL_TOKENIZER_H
