#include "Commands.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sys/stat.h>

namespace kdac::runtool {

using namespace model;
using nlohmann::json;

namespace {

StatusOr<std::string> readText(const std::string &path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    errno = EISDIR;
  else if (std::ifstream file(path, std::ios::binary); file) {
    text << file.rdbuf();
    return text.str();
  }
  return Status(ErrorCode::Io, path + ": " + std::strerror(errno));
}

Status notTokens(const std::string &where) {
  return Status(ErrorCode::InvalidArgument,
                where + " should hold token ids, with spaces or commas between "
                        "them");
}

/// Numbers with anything of brackets, commas and space between them.
StatusOr<std::vector<int32_t>> parseTokens(const std::string &text,
                                           const std::string &where) {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < text.size();) {
    auto c = static_cast<unsigned char>(text[at]);
    if (std::isspace(c) || c == ',' || c == '[' || c == ']') {
      ++at;
      continue;
    }
    int64_t token = 0;
    size_t begin = at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9' &&
           token < INT32_MAX / 10;
         ++at)
      token = token * 10 + (text[at] - '0');
    if (at == begin ||
        (at < text.size() && !std::strchr(" \t\r\n\v\f,]", text[at])))
      return notTokens(where);
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

class Reader {
public:
  Reader(const Options &options, std::optional<Tokenizer> &tokenizer)
      : options(options), tokenizer(tokenizer) {}

  StatusOr<std::vector<int32_t>> encode(const std::string &text) {
    if (options.model.empty())
      return Status(ErrorCode::InvalidArgument,
                    "a text needs the tokenizer of a model folder, which is "
                    "not given; token ids go through --tokens");
    if (!tokenizer) {
      StatusOr<Tokenizer> opened = Tokenizer::open(options.model);
      if (!opened.ok())
        return opened.status().with("a text needs the model's tokenizer; token "
                                    "ids go through --tokens");
      tokenizer.emplace(std::move(*opened));
    }
    return tokenizer->encode(text);
  }

  /// A line of a batch: "text", [ids], {"prompt": "text"} or {"tokens": [ids]}.
  StatusOr<std::vector<int32_t>> parseLine(const std::string &line,
                                           const std::string &where) {
    json value = json::parse(line, nullptr, false);
    for (const char *key : {"prompt", "tokens"})
      if (value.is_object() && value.size() == 1 && value.contains(key)) {
        json inner = std::move(value[key]);
        value = std::move(inner);
      }
    if (value.is_string())
      return encode(value.get<std::string>());
    if (!value.is_array())
      return Status(ErrorCode::InvalidArgument,
                    where + " should be a JSON string, an array of token ids, "
                            "or an object with \"prompt\" or \"tokens\" and "
                            "nothing else");
    std::vector<int32_t> tokens;
    for (const json &id : value) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
        return Status(ErrorCode::InvalidArgument,
                      where + " should be an array of token ids alone");
      tokens.push_back(static_cast<int32_t>(id.get<uint64_t>()));
    }
    return tokens;
  }

  GenerateRequest request(std::vector<int32_t> tokens, size_t number) const {
    GenerateRequest request;
    request.prompt = std::move(tokens);
    request.newTokens = options.maxTokens;
    request.sampling = options.sampling;
    request.sampling.seed += number;
    return request;
  }

private:
  const Options &options;
  std::optional<Tokenizer> &tokenizer;
};

} // namespace

StatusOr<std::vector<GenerateRequest>>
readRequests(const Options &options, std::optional<Tokenizer> &tokenizer) {
  Reader reader(options, tokenizer);
  std::vector<GenerateRequest> requests;
  auto add = [&](StatusOr<std::vector<int32_t>> tokens) {
    if (!tokens.ok())
      return tokens.status();
    requests.push_back(reader.request(std::move(*tokens), requests.size()));
    return Status::success();
  };
  Status status;
  if (options.prompt) {
    status = add(reader.encode(*options.prompt));
  } else if (!options.tokens.empty()) {
    StatusOr<std::string> text = readText(options.tokens);
    status =
        text.ok() ? add(parseTokens(*text, options.tokens)) : text.status();
  } else if (!options.batch.empty()) {
    StatusOr<std::string> text = readText(options.batch);
    std::istringstream lines(text.ok() ? *text : "");
    status = text.status();
    std::string line;
    for (int number = 1; status.ok() && std::getline(lines, line); ++number)
      if (!line.empty())
        status = add(reader.parseLine(line, options.batch + ": line " +
                                                std::to_string(number)));
  } else {
    status =
        Status(ErrorCode::InvalidArgument,
               "nothing to do; pass --prompt, --tokens, --chat or --batch");
  }
  if (!status.ok())
    return status;
  return requests;
}

} // namespace kdac::runtool
