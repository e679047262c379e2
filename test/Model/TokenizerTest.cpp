// The split pattern, merges, special tokens and the chat template, on synthetic
// vocabularies. hybrid-model.md 6.
#include "kdac/Model/Tokenizer.h"

#include "gtest/gtest.h"

#include <cstdlib>
#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

std::string base64(const std::string &bytes) {
  constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 |
             (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

/// All bytes, then the given tokens.
std::string ranks(const std::vector<std::string> &more) {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    text += base64(std::string(1, static_cast<char>(byte))) + " " +
            std::to_string(rank++) + "\n";
  for (const std::string &token : more)
    text += base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

Tokenizer make(const std::vector<std::string> &more) {
  StatusOr<Tokenizer> tokenizer = Tokenizer::fromRanks(ranks(more), "t");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

/// "a|b|c": the pieces of a text.
std::string split(std::string_view text) {
  std::string joined;
  for (std::string_view piece : splitText(text))
    joined += (joined.empty() ? "" : "|") + std::string(piece);
  return joined;
}

std::string decoded(const Tokenizer &t, const std::vector<int32_t> &tokens) {
  TextStream stream(t);
  std::string text;
  for (int32_t token : tokens)
    text += stream.add(token);
  return text + stream.rest();
}

} // namespace

TEST(SplitText, Words) {
  EXPECT_EQ(split("Hello world"), "Hello| world");
  EXPECT_EQ(split("HELLO World camelCase"), "HELLO| World| camel|Case");
  EXPECT_EQ(split("JSONParser"), "JSONParser");
  EXPECT_EQ(split("ABC"), "ABC");
  EXPECT_EQ(split("(x)"), "(x|)");
  EXPECT_EQ(split("naïve Übung"), "naïve| Übung");
}

TEST(SplitText, Contractions) {
  EXPECT_EQ(split("it's we'LL can't"), "it's| we'LL| can't");
  EXPECT_EQ(split("x'q"), "x|'q");
  EXPECT_EQ(split("I'd've"), "I'd|'ve");
  EXPECT_EQ(split("they'r"), "they|'r");
}

TEST(SplitText, NumbersInThrees) {
  EXPECT_EQ(split("1234567"), "123|456|7");
  EXPECT_EQ(split("v2 10"), "v|2| |10");
  EXPECT_EQ(split("½Ⅷ"), "½Ⅷ");
}

TEST(SplitText, HanStandsAlone) {
  EXPECT_EQ(split("你好world"), "你好|world");
  EXPECT_EQ(split("abc你好"), "abc|你好");
  EXPECT_EQ(split("你好，世界"), "你好|，|世界");
  EXPECT_EQ(split(" 你"), " |你");
  EXPECT_EQ(split("〇々"), "〇々");
}

/// Letters without case are in both classes: a run gives back what a lower one
/// needs.
TEST(SplitText, CaselessLettersAndMarks) {
  EXPECT_EQ(split("こんにちは"), "こんにちは");
  EXPECT_EQ(split("あB!"), "あ|B|!");
  EXPECT_EQ(split("Bあ"), "Bあ");
  EXPECT_EQ(split("e\u0301t"), "e\u0301t");
  EXPECT_EQ(split("\u0301"), "\u0301");
}

TEST(SplitText, SymbolsTakeNewlines) {
  EXPECT_EQ(split("a ++\n\nb"), "a| ++\n\n|b");
  EXPECT_EQ(split("...!"), "...!");
  EXPECT_EQ(split("😀x"), "😀x");
}

TEST(SplitText, Space) {
  EXPECT_EQ(split("a  b"), "a| | b");
  EXPECT_EQ(split("a   "), "a|   ");
  EXPECT_EQ(split("a \n  b"), "a| \n| | b");
  EXPECT_EQ(split("a\n \n1"), "a|\n \n|1");
  EXPECT_EQ(split("a\t1"), "a|\t|1");
  EXPECT_EQ(split("\tb"), "\tb");
  EXPECT_EQ(split(""), "");
}

TEST(SplitText, AnyBytesAreCovered) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, ' ');
    for (char &c : text)
      c = static_cast<char>(round % 2 ? random() : random() % 64 + 32);
    std::string joined;
    for (std::string_view piece : splitText(text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(Tokenizer, MergesByRankAndThenFromTheLeft) {
  // 256 ab, 257 bc, 258 abc, 259 aa
  Tokenizer t = make({"ab", "bc", "abc", "aa"});
  EXPECT_EQ(t.encode("abc"), std::vector<int32_t>({258}));
  EXPECT_EQ(t.encode("xbc"), std::vector<int32_t>({'x', 257}));
  EXPECT_EQ(t.encode("abcb"), std::vector<int32_t>({258, 'b'}));
  EXPECT_EQ(t.encode("aaa"), std::vector<int32_t>({259, 'a'}));
  EXPECT_EQ(t.encode("aab"), std::vector<int32_t>({'a', 256}));
  EXPECT_EQ(t.encode("aaaab"), std::vector<int32_t>({259, 'a', 256}));
}

/// The merge queue against the obvious quadratic loop.
TEST(Tokenizer, TheQueueIsTheObviousLoop) {
  std::vector<std::string> tokens = {"ab",  "ba",  "aab", "abab", "bb",
                                     "cab", "abc", "cc",  "bca",  "ccb"};
  Tokenizer t = make(tokens);
  auto rankOf = [&](const std::string &s) {
    for (size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == s)
        return static_cast<int>(256 + i);
    return s.size() == 1 ? static_cast<int>(s[0]) : INT32_MAX;
  };
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text(1 + random() % 14, ' ');
    for (char &c : text)
      c = static_cast<char>('a' + random() % 3);
    std::vector<std::string> parts;
    for (char c : text)
      parts.push_back(std::string(1, c));
    while (rankOf(text) == INT32_MAX) {
      size_t best = parts.size();
      for (size_t i = 0; i + 1 < parts.size(); ++i)
        if (int r = rankOf(parts[i] + parts[i + 1]);
            r != INT32_MAX &&
            (best == parts.size() || r < rankOf(parts[best] + parts[best + 1])))
          best = i;
      if (best == parts.size())
        break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<long>(best) + 1);
    }
    std::vector<int32_t> expected;
    if (rankOf(text) != INT32_MAX)
      expected = {rankOf(text)};
    else
      for (const std::string &part : parts)
        expected.push_back(rankOf(part));
    EXPECT_EQ(t.encode(text), expected) << text;
  }
}

TEST(Tokenizer, LongPiecesAreFast) {
  Tokenizer t = make({"aa", "aaaa"});
  EXPECT_EQ(t.encode(std::string(200000, 'a')).size(), 50000u);
}

TEST(Tokenizer, RoundTrip) {
  Tokenizer t = make({"He", "llo", " wor"});
  for (const char *text : {"Hello world!\n", "你好 😀 naïve", "\xff\x80 odd"})
    EXPECT_EQ(decoded(t, t.encode(text)), text);
}

TEST(Tokenizer, AStreamHoldsUnfinishedCodePointsBack) {
  Tokenizer t = make({});
  TextStream stream(t);
  EXPECT_EQ(stream.add(0xf0), "");
  EXPECT_EQ(stream.add(0x9f), "");
  EXPECT_EQ(stream.add(0x98), "");
  EXPECT_EQ(stream.add(0x80), "😀");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.add('x'), "\xe4x");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.rest(), "\xe4");
}

TEST(Tokenizer, SpecialTokensFollowTheBaseTokens) {
  Tokenizer t = make({});
  EXPECT_EQ(t.special("<|im_end|>"), 258);
  EXPECT_EQ(t.special("nothing"), -1);
  EXPECT_EQ(t.bytesOf(273), "<|im_middle|>");
  EXPECT_EQ(t.bytesOf(261), "<|reserved_token_261|>");
  EXPECT_EQ(t.encodeWithSpecials("a<|im_end|>b["),
            std::vector<int32_t>({'a', 258, 'b', '['}));
  EXPECT_EQ(t.encode("<|im_end|>").size(), 10u);
}

TEST(Tokenizer, ChatTemplate) {
  Tokenizer t = make({"user", "assistant", "system"});
  auto tokens = t.encodeChat({{"system", "S"}, {"user", "<|im_end|>"}});
  ASSERT_TRUE(tokens.ok());
  const int32_t base = 259;
  std::vector<int32_t> expected = {base + 10, 258,      base + 17, 'S',
                                   base + 2,  base + 3, 256,       base + 17};
  for (char c : std::string("<|im_end|>"))
    expected.push_back(c);
  for (int32_t token : {base + 2, base + 4, 257, base + 17})
    expected.push_back(token);
  EXPECT_EQ(*tokens, expected);
}

TEST(Tokenizer, DamagedFilesAreRefused) {
  auto refusal = [](const std::string &text) {
    auto tokenizer = Tokenizer::fromRanks(text, "t");
    return tokenizer.ok() ? "accepted" : tokenizer.status().message();
  };
  EXPECT_EQ(refusal(""), "t has no token for the byte 0");
  EXPECT_EQ(refusal("AA== 1\n"),
            "t: line 1 is not a new token in base64 and the rank 0");
  EXPECT_EQ(refusal("A?== 0\n"),
            "t: line 1 is not a new token in base64 and the rank 0");
  EXPECT_EQ(refusal("AA== 0\nAA== 1\n"),
            "t: line 2 is not a new token in base64 and the rank 1");
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\n"),
            "t: line 1 is not a new token in base64 and the rank 0");
  EXPECT_EQ(refusal(ranks({"ab"})), "accepted");
}

/// Token ids of the reference, where the 48B's own file is at hand.
TEST(Tokenizer, TheRealVocabulary) {
  const char *folder = std::getenv("KDAC_KIMI_TOKENIZER");
  if (!folder)
    GTEST_SKIP() << "set KDAC_KIMI_TOKENIZER to a folder with tiktoken.model";
  StatusOr<Tokenizer> t = Tokenizer::open(folder);
  ASSERT_TRUE(t.ok()) << t.status().message();
  auto tokens =
      t->encodeChat({{"user", "Tell me about the french revolution."}});
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(*tokens, std::vector<int32_t>({163587, 2482, 163601, 69211, 1019,
                                           1215, 276, 64782, 25317, 13, 163586,
                                           163588, 69702, 163601}));
}
