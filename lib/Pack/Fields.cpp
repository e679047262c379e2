#include "Fields.h"

#include <cmath>

namespace kdac {

std::string Fields::path(const char *key) const {
  if (!*key)
    return where.empty() ? "top level" : where;
  return where.empty() ? key : where + "." + key;
}

void Fields::reject(const char *key, const std::string &what) {
  if (status.ok())
    status =
        Status(ErrorCode::Corrupt, "manifest field " + path(key) + ": " + what);
}

void Fields::fail(const char *key, const char *expected,
                  const nlohmann::json &got) {
  reject(key,
         std::string("expected ") + expected + ", but got " + got.type_name());
}

const nlohmann::json *Fields::find(const char *key) {
  if (!status.ok())
    return nullptr;
  auto found = value.find(key);
  if (found != value.end())
    return &*found;
  reject(key, "is missing");
  return nullptr;
}

std::string Fields::text(const char *key) {
  const nlohmann::json *field = find(key);
  if (field && !field->is_string())
    fail(key, "a string", *field);
  return status.ok() ? *field->get_ptr<const std::string *>() : std::string();
}

bool Fields::boolean(const char *key) {
  const nlohmann::json *field = find(key);
  if (field && !field->is_boolean())
    fail(key, "a boolean", *field);
  return status.ok() && *field->get_ptr<const bool *>();
}

double Fields::number(const char *key) {
  const nlohmann::json *field = find(key);
  if (field && !field->is_number())
    fail(key, "a number", *field);
  return status.ok() ? field->get<double>() : 0;
}

int64_t Fields::integer(const char *key, int64_t min, int64_t max) {
  const nlohmann::json *field = find(key);
  if (field && !field->is_number_integer())
    fail(key, "an integer", *field);
  if (!status.ok())
    return min;
  // An unsigned value of 2^63 or more would turn negative in get<int64_t>.
  bool huge = field->is_number_unsigned() &&
              field->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  int64_t got = huge ? INT64_MAX : field->get<int64_t>();
  if (huge || got < min || got > max)
    reject(key, field->dump() + " is not between " + std::to_string(min) +
                    " and " + std::to_string(max));
  return status.ok() ? got : min;
}

} // namespace kdac
