// What the commands share.
#include "Commands.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <regex.h>

namespace kdac::packtool {

int refuse(const std::string &message) {
  std::fprintf(stderr, "kdac-pack: %s\n", message.c_str());
  return 2;
}

StatusOr<std::vector<const PackVariant *>> selected(const PackReader &pack,
                                                    const Options &options) {
  regex_t expression;
  bool all = options.filter.empty();
  if (!all && ::regcomp(&expression, options.filter.c_str(),
                        REG_EXTENDED | REG_NOSUB) != 0)
    return Status(ErrorCode::InvalidArgument,
                  "filter '" + options.filter +
                      "' is not a valid regular expression");
  std::vector<const PackVariant *> variants;
  for (const PackVariant &v : pack.manifest().variants)
    if (all || ::regexec(&expression, v.name().c_str(), 0, nullptr, 0) == 0)
      variants.push_back(&v);
  if (!all)
    ::regfree(&expression);
  if (variants.empty())
    return Status(ErrorCode::NotFound, "no variant of '" + options.pack +
                                           "' matches '" + options.filter +
                                           "'");
  return variants;
}

StatusOr<Ledger> readLedger(const std::string &path) {
  Ledger ledger;
  if (path.empty())
    return ledger;
  std::ifstream file(path);
  if (!file)
    return Status(ErrorCode::NotFound,
                  "cannot read ledger '" + path + "': " + std::strerror(errno));
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty())
      continue;
    nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    bool good = entry.is_object() && entry.contains("ptx_sha256") &&
                entry["ptx_sha256"].is_string() && entry.contains("gpu") &&
                entry["gpu"].is_string();
    if (!good)
      return Status(ErrorCode::Corrupt,
                    path + ":" + std::to_string(number) +
                        ": expected an object with ptx_sha256 and gpu");
    ledger[entry["ptx_sha256"].get<std::string>()].push_back(std::move(entry));
  }
  return ledger;
}

std::string ranOn(const Ledger &ledger, const PackVariant &variant) {
  const std::string &digest = variant.launches[0].ptxSha256;
  if (digest.empty())
    return "-";
  auto found = ledger.find(digest);
  if (found == ledger.end())
    return "never run on a GPU";
  std::vector<std::string> names;
  for (const nlohmann::json &line : found->second)
    names.push_back(line["gpu"].get<std::string>());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "run on " : ", ") + name;
  return text;
}

void printJson(const nlohmann::ordered_json &value) {
  std::printf(
      "%s\n",
      value
          .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
          .c_str());
}

} // namespace kdac::packtool
