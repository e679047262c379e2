// Promises: checked reads of a JSON object with optional keys; the first
// failure is kept and names file, key, value and limit; keys that nobody asked
// for are known afterwards. Does not: throw.
#ifndef KDAC_LIB_MODEL_JSONFIELDS_H
#define KDAC_LIB_MODEL_JSONFIELDS_H

#include "kdac/Runtime/Status.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kdac::model {

class JsonFields {
public:
  /// `where` is how errors call the object: "config.json" or
  /// "config.json: linear_attn_config".
  JsonFields(const nlohmann::json &value, std::string where, Status &status);

  /// The value of `key`; absent or null: `otherwise`, or an error where that is
  /// nothing. Values outside [min, max] are errors.
  int64_t integer(const char *key, int64_t min, int64_t max,
                  std::optional<int64_t> otherwise = std::nullopt);
  double number(const char *key, double min, double max,
                std::optional<double> otherwise = std::nullopt);
  bool boolean(const char *key, bool otherwise);
  std::string text(const char *key, const char *otherwise);
  /// An array of integers in [min, max]; a single one is an array of one.
  std::vector<int64_t> integers(const char *key, int64_t min, int64_t max);
  /// An array of strings; empty where the key is absent or null.
  std::vector<std::string> texts(const char *key);

  /// The value itself, or null where it is absent or null.
  const nlohmann::json *find(const char *key);
  /// Records "WHERE: key 'KEY' WHAT" unless something failed before.
  void reject(const char *key, const std::string &what);
  /// Marks keys as known without reading them.
  void skip(std::initializer_list<const char *> keys);
  /// Keys that were neither read nor skipped.
  std::vector<std::string> unknown() const;

private:
  const nlohmann::json &value;
  std::string where;
  Status &status;
  std::set<std::string> known;
};

/// JSON without exceptions: an error names `name`. A key twice in one object or
/// nesting that would overflow the stack of whoever prints the value is an
/// error.
StatusOr<nlohmann::json> parseJson(std::string_view text,
                                   const std::string &name);

/// A value as errors show it, at most 40 characters.
std::string shown(const nlohmann::json &value);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_JSONFIELDS_H
