#include "pipit/measuring/json_documents.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pipit::internal::detail {

namespace {

constexpr double kMaxAmount = 1e15;

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
  std::ptrdiff_t line = 1;
  do {
    const std::string_view document = content.substr(0, document_end(content));
    try {
      take(parse_json(document, most_levels));
    } catch (const Error& e) {
      if (line == 1) throw;
      fail("line {}: {}", line, e.what());
    }
    const std::size_t next = std::min(content.find_first_not_of(" \t\r\n", document.size()), content.size());
    line += std::ranges::count(content.substr(0, next), '\n');
    content.remove_prefix(next);
  } while (!content.empty());
}

JsonDocument first_document(std::string_view content, int most_levels) {
  return parse_json(content.substr(0, document_end(content)), most_levels);
}

void for_each_entry(const JsonDocument& json, const char* key,
                    const std::function<void(const JsonDocument&)>& take) {
  std::size_t number = 0;
  for (const JsonDocument& entry : list_of(json, key)) {
    ++number;
    try {
      take(entry);
    } catch (const Error& e) {
      fail("\"{}\", number {}: {}", key, number, e.what());
    }
  }
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
  if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kMaxAmount)
    fail("\"{}\" is {}; expected a number from 0 to {:g}", key, shown(value), kMaxAmount);
  return value.get<double>();
}

double positive_of(const JsonDocument& json, const char* key) {
  const double value = amount_of(json, key);
  if (value <= 0) fail("\"{}\" is {}; expected a positive number", key, value);
  return value;
}

std::int64_t count_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
  const bool whole = value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (!whole || !(value.get<double>() >= 1 && value.get<double>() <= kMax))
    fail("\"{}\" is {}; expected a whole number from 1 to {}", key, shown(value), kMax);
  return static_cast<std::int64_t>(value.get<double>());
}

double share_of(const JsonDocument& json, const char* key) {
  const double value = amount_of(json, key);
  if (value > 1) fail("\"{}\" is {}; expected a number from 0 to 1", key, value);
  return value;
}

const JsonDocument& list_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_array()) fail("\"{}\" is {}; expected a list", key, shown(value));
  return value;
}

const JsonDocument& object_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_object()) fail("\"{}\" is {}; expected an object", key, shown(value));
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
    return end.is_number() && end.get<double>() > 0 && end.get<double>() <= kMaxAmount;
  };
  if (!value.is_array() || value.size() != 2 || !is_time(value[0]) || !is_time(value[1]) ||
      value[0].get<double>() > value[1].get<double>())
    fail("\"{}\" is {}; expected two positive numbers, the smaller one first", key, shown(value));
  return {value[0].get<double>(), value[1].get<double>()};
}

std::vector<double> layer_samples_ms_of(const JsonDocument& json) {
  const JsonDocument& value = member_of(json, "samples_ms");
  if (!value.is_array() || value.empty())
    fail("\"samples_ms\" is {}; expected a list of times", shown(value));
  std::vector<double> times;
  for (const JsonDocument& entry : value) {
    if (!entry.is_number() || !(entry.get<double>() >= 0 && entry.get<double>() <= kMaxAmount))
      fail("\"samples_ms\" has {}; expected times", shown(entry));
    times.push_back(entry.get<double>());
  }
  return times;
}

std::vector<double> samples_ms_of(const JsonDocument& json) {
  std::vector<double> times = layer_samples_ms_of(json);
  if (std::ranges::find(times, 0) != times.end())
    fail("\"samples_ms\" has 0; expected times, which are positive");
  return times;
}

void check_within(const char* key, double value, const std::pair<double, double>& interval,
                  const std::string& interval_key) {
  if (value < interval.first || value > interval.second)
    fail("\"{}\" is {}, outside of \"{}\" [{}, {}]", key, value, interval_key, interval.first,
         interval.second);
}

}  // namespace pipit::internal::detail
