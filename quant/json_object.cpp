#include "quant/json_object.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "pipit/text.h"

namespace pipit::internal {

JsonObject::JsonObject(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) fail("{} must be a JSON object, not {}", where_, shown(json));
}

const JsonObject::Json& JsonObject::at(const char* key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) fail("{}: '{}' is missing", where_, key);
  return *found;
}

std::string JsonObject::text(const char* key) const {
  if (!at(key).is_string()) wrong(key, "a string");
  return at(key).get<std::string>();
}

double JsonObject::number(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) wrong(key, "a finite number");
  return value.get<double>();
}

float JsonObject::real(const char* key) const {
  const auto value = static_cast<float>(number(key));
  if (!std::isfinite(value)) wrong(key, "a number that fits 32-bit floating point");
  return value;
}

std::int64_t JsonObject::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const Json& value = at(key);
  const std::string expected =
      low == high ? fmt::format("{}", low) : fmt::format("an integer from {} to {}", low, high);
  // Above 2^63 integers are unsigned in JSON; none is valid here.
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0))
    wrong(key, expected);
  const auto n = value.get<std::int64_t>();
  if (n < low || n > high) wrong(key, expected);
  return n;
}

const JsonObject::Json& JsonObject::array(const char* key) const {
  if (!at(key).is_array()) wrong(key, "an array");
  return at(key);
}

const JsonObject::Json& JsonObject::object(const char* key, const char* form) const {
  if (!at(key).is_object()) wrong(key, fmt::format("an object {}", form));
  return at(key);
}

void JsonObject::only(std::initializer_list<const char*> keys) const {
  const std::vector<std::string> known(keys.begin(), keys.end());
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("{}: there is no key '{}'{}", where_, key, near_names(key, known));
  }
}

void JsonObject::wrong(const char* key, const std::string& expected) const {
  fail("{}: '{}' must be {}, not {}", where_, key, expected, shown(at(key)));
}

}  // namespace pipit::internal
