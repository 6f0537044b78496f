#include "apps/measuring/json_documents.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pipit::apps {

namespace {

constexpr double kMostAmount = 1e15;

// Where the first JSON object of the text ends; all of it where none does.
std::size_t document_end(std::string_view text) {
  int open = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++open;
    } else if (c == '}' && --open == 0) {
      return i + 1;
    }
  }
  return text.size();
}

}  // namespace

void for_each_document(std::string_view content, int most_levels,
                       const std::function<void(const JsonDocument&)>& take) {
  do {
    const std::size_t end = document_end(content);
    take(parse_json(content.substr(0, end), most_levels));
    content.remove_prefix(end);
    content.remove_prefix(std::min(content.find_first_not_of(" \t\r\n"), content.size()));
  } while (!content.empty());
}

JsonDocument first_document(std::string_view content, int most_levels) {
  return parse_json(content.substr(0, document_end(content)), most_levels);
}

const JsonDocument& member_of(const JsonDocument& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) fail("there is no \"{}\"", key);
  return *found;
}

std::string text_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_string()) fail("\"{}\" is {}; expected text", key, shown(value));
  return value.get<std::string>();
}

double amount_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kMostAmount)
    fail("\"{}\" is {}; expected a number from 0 to {:g}", key, shown(value), kMostAmount);
  return value.get<double>();
}

double positive_of(const JsonDocument& json, const char* key) {
  const double value = amount_of(json, key);
  if (value <= 0) fail("\"{}\" is {}; expected a positive number", key, value);
  return value;
}

std::int64_t count_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  const bool whole = value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (!whole || !(value.get<double>() >= 1 && value.get<double>() <= kMost))
    fail("\"{}\" is {}; expected a whole number from 1 to {}", key, shown(value), kMost);
  return static_cast<std::int64_t>(value.get<double>());
}

const JsonDocument& list_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_array()) fail("\"{}\" is {}; expected a list", key, shown(value));
  return value;
}

std::size_t bytes_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_number_integer() || amount_of(json, key) < 0)
    fail("\"{}\" is {}; expected a number of bytes", key, shown(value));
  return value.get<std::size_t>();
}

std::pair<double, double> interval_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  const auto is_time = [](const JsonDocument& end) {
    return end.is_number() && end.get<double>() > 0 && end.get<double>() <= kMostAmount;
  };
  if (!value.is_array() || value.size() != 2 || !is_time(value[0]) || !is_time(value[1]) ||
      value[0].get<double>() > value[1].get<double>())
    fail("\"{}\" is {}; expected two positive numbers, the smaller one first", key, shown(value));
  return {value[0].get<double>(), value[1].get<double>()};
}

std::vector<double> samples_ms_of(const JsonDocument& json) {
  const JsonDocument& value = member_of(json, "samples_ms");
  if (!value.is_array() || value.empty())
    fail("\"samples_ms\" is {}; expected a list of times", shown(value));
  std::vector<double> times;
  for (const JsonDocument& entry : value) {
    if (!entry.is_number() || !std::isfinite(entry.get<double>()) || entry.get<double>() < 0)
      fail("\"samples_ms\" has {}; expected times", shown(entry));
    times.push_back(entry.get<double>());
  }
  return times;
}

}  // namespace pipit::apps
