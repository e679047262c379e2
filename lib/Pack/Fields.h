// Promises: checked reads of JSON of any origin; the first failure is kept,
// with the path of its field. Does not: throw, or accept a field of another
// type.
#ifndef KDAC_LIB_PACK_FIELDS_H
#define KDAC_LIB_PACK_FIELDS_H

#include "kdac/Runtime/Status.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace kdac {

/// The fields of one JSON object. Every getter returns a harmless value after a
/// failure; the caller looks at `status` once, at the end.
class Fields {
public:
  Fields(const nlohmann::json &value, std::string where, Status &status)
      : value(value), where(std::move(where)), status(status) {
    if (!value.is_object())
      fail("", "an object", value);
  }

  bool has(const char *key) const {
    return value.is_object() && value.contains(key);
  }
  std::string text(const char *key);
  bool boolean(const char *key);
  double number(const char *key);
  int64_t integer(const char *key, int64_t min, int64_t max);

  /// A string that `parse` turns into an optional value.
  template <typename Parse> auto spelled(const char *key, Parse parse) {
    std::string spelling = text(key);
    auto parsed = parse(spelling);
    if (!parsed && status.ok())
      reject(key, "unknown value '" + spelling + "'");
    return parsed ? *parsed : typename decltype(parsed)::value_type();
  }

  /// Calls `each(element, path)` for every element of an array.
  template <typename Each> void array(const char *key, Each each) {
    const nlohmann::json *list = find(key);
    if (list && !list->is_array())
      fail(key, "an array", *list);
    for (size_t i = 0; status.ok() && i < list->size(); ++i)
      each((*list)[i], path(key) + "[" + std::to_string(i) + "]");
  }

  /// Records `what` about `key`, unless something failed before.
  void reject(const char *key, const std::string &what);

private:
  const nlohmann::json *find(const char *key);
  std::string path(const char *key) const;
  void fail(const char *key, const char *expected, const nlohmann::json &got);

  const nlohmann::json &value;
  std::string where;
  Status &status;
};

} // namespace kdac

#endif // KDAC_LIB_PACK_FIELDS_H
