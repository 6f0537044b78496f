// Reading options from text: what options.cpp and tool_options.cpp share.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "pipit/capi/handles.h"

namespace pipit::internal::capi {

// What a value is not; pipit_options_set() says which option it was given for.
struct Refused {
  std::string why;
};

struct Option {
  const char* name;
  const char* values;
  void (*set)(pipit_options& options, const std::string& value);
};

template <typename Number>
std::optional<Number> parsed(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || rest != end) return std::nullopt;
  return number;
}

template <typename Number>
Number number(std::string_view text, Number least, Number most) {
  const std::optional<Number> value = parsed<Number>(text);
  if (!value || *value < least || *value > most)
    throw Refused{"a number from " + std::to_string(least) + " to " + std::to_string(most)};
  return *value;
}

inline int integer(std::string_view text, int least, int most) {
  return number<int>(text, least, most);
}

inline bool flag(std::string_view text) {
  if (text != "true" && text != "false") throw Refused{"true or false"};
  return text == "true";
}

inline std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != text.npos; begin = end + 1) {
    end = text.find(between, begin);
    parts.push_back(text.substr(begin, end == text.npos ? end : end - begin));
  }
  return parts;
}

// The value of `words`, which are pairs of a word and what it means.
template <typename Words>
auto one_of(const Words& words, const std::string& text) {
  std::string all;
  for (const auto& [word, meaning] : words) {
    if (text == word) return meaning;
    all += all.empty() ? "" : ", ";
    all += word;
  }
  throw Refused{"one of " + all};
}

template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;

template <typename T>
Words<T> named_by(std::string_view (*name)(T), std::initializer_list<T> values) {
  Words<T> words;
  for (const T value : values) words.emplace_back(name(value), value);
  return words;
}

/// The options of what pipit::tools does (tool_options.cpp), which a minimal library does not have.
std::span<const Option> tool_options();

}  // namespace pipit::internal::capi
