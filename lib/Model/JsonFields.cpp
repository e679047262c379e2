#include "JsonFields.h"

#include <cmath>

namespace kdac::model {

using nlohmann::json;

namespace {

std::string quoted(const std::string &text) { return "'" + text + "'"; }

/// No honest file nests deeper, and what copies or prints a value recurses.
constexpr int deepest = 64;

bool isTooDeep(std::string_view text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inString = false;
    } else if (c == '"') {
      inString = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest)
        return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

} // namespace

std::string shown(const json &value) {
  constexpr size_t longest = 40;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest - 3) + "...";
}

StatusOr<json> parseJson(std::string_view text, const std::string &name) {
  if (isTooDeep(text))
    return Status(ErrorCode::Corrupt, name + " is nested too deeply");
  // Of a key that is there twice, the parser would keep one in silence.
  std::vector<std::set<std::string>> keys(deepest + 2); // by depth
  std::string twice;
  auto watch = [&](int depth, json::parse_event_t event, json &value) {
    if (event == json::parse_event_t::object_start)
      keys[static_cast<size_t>(depth) + 1].clear();
    else if (event == json::parse_event_t::key &&
             !keys[static_cast<size_t>(depth)]
                  .insert(value.get<std::string>())
                  .second)
      twice = value.get<std::string>();
    return true;
  };
  json value = json::parse(text.begin(), text.end(), watch, false);
  if (value.is_discarded())
    return Status(ErrorCode::Corrupt, name + " is not JSON");
  if (!twice.empty())
    return Status(ErrorCode::Corrupt,
                  name + " has the key '" + twice + "' twice");
  return value;
}

JsonFields::JsonFields(const json &value, std::string where, Status &status)
    : value(value), where(std::move(where)), status(status) {
  if (!value.is_object() && status.ok())
    status =
        Status(ErrorCode::Corrupt,
               this->where + " should be an object, but is " + shown(value));
}

const json *JsonFields::find(const char *key) {
  known.insert(key);
  if (!value.is_object())
    return nullptr;
  auto it = value.find(key);
  return it == value.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::reject(const char *key, const std::string &what) {
  if (status.ok())
    status = Status(ErrorCode::InvalidArgument,
                    where + ": key " + quoted(key) + " " + what);
}

int64_t JsonFields::integer(const char *key, int64_t min, int64_t max,
                            std::optional<int64_t> otherwise) {
  const json *field = find(key);
  if (!field) {
    if (!otherwise)
      reject(key, "is missing");
    return otherwise.value_or(min);
  }
  bool isInteger = field->is_number_integer() &&
                   !(field->is_number_unsigned() &&
                     field->get<uint64_t>() > uint64_t(INT64_MAX));
  if (isInteger && field->get<int64_t>() >= min && field->get<int64_t>() <= max)
    return field->get<int64_t>();
  reject(key, "is " + shown(*field) + ", but should be an integer from " +
                  std::to_string(min) + " to " + std::to_string(max));
  return min;
}

double JsonFields::number(const char *key, double min, double max,
                          std::optional<double> otherwise) {
  const json *field = find(key);
  if (!field) {
    if (!otherwise)
      reject(key, "is missing");
    return otherwise.value_or(min);
  }
  double number = field->is_number() ? field->get<double>() : NAN;
  if (number >= min && number <= max)
    return number;
  reject(key, "is " + shown(*field) + ", but should be a number from " +
                  shown(json(min)) + " to " + shown(json(max)));
  return min;
}

bool JsonFields::boolean(const char *key, bool otherwise) {
  const json *field = find(key);
  if (!field)
    return otherwise;
  if (field->is_boolean())
    return field->get<bool>();
  reject(key, "is " + shown(*field) + ", but should be true or false");
  return otherwise;
}

std::string JsonFields::text(const char *key, const char *otherwise) {
  const json *field = find(key);
  if (!field)
    return otherwise;
  if (field->is_string())
    return field->get<std::string>();
  reject(key, "is " + shown(*field) + ", but should be a string");
  return otherwise;
}

std::vector<int64_t> JsonFields::integers(const char *key, int64_t min,
                                          int64_t max) {
  std::vector<int64_t> list;
  const json *field = find(key);
  if (!field)
    return list;
  json one = json::array({*field});
  const json &all = field->is_array() ? *field : one;
  for (const json &element : all) {
    bool isInteger = element.is_number_integer() &&
                     !(element.is_number_unsigned() &&
                       element.get<uint64_t>() > uint64_t(INT64_MAX));
    if (!isInteger || element.get<int64_t>() < min ||
        element.get<int64_t>() > max) {
      reject(key, "has " + shown(element) + ", but should hold integers from " +
                      std::to_string(min) + " to " + std::to_string(max));
      return {};
    }
    list.push_back(element.get<int64_t>());
  }
  return list;
}

std::vector<std::string> JsonFields::texts(const char *key) {
  std::vector<std::string> list;
  const json *field = find(key);
  if (!field)
    return list;
  if (!field->is_array())
    reject(key, "is " + shown(*field) + ", but should be an array of strings");
  for (const json &element : field->is_array() ? *field : json::array())
    if (element.is_string())
      list.push_back(element.get<std::string>());
    else
      reject(key, "has " + shown(element) + ", but should hold strings");
  return list;
}

void JsonFields::skip(std::initializer_list<const char *> keys) {
  known.insert(keys.begin(), keys.end());
}

std::vector<std::string> JsonFields::unknown() const {
  std::vector<std::string> keys;
  if (value.is_object())
    for (auto it = value.begin(); it != value.end(); ++it)
      if (!known.count(it.key()))
        keys.push_back(it.key());
  return keys;
}

} // namespace kdac::model
