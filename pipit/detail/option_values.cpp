#include "pipit/detail/option_values.h"

#include <charconv>

namespace pipit::internal::detail {

std::pair<std::string, std::string_view> named_value(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == text.npos) return {};
  return {std::string(text.substr(0, equals)), text.substr(equals + 1)};
}

std::optional<std::int64_t> extent_of(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ptr != end || value < 1) return std::nullopt;
  return value;
}

std::optional<Shape> shape_of(std::string_view text) {
  std::vector<std::int64_t> extents;
  while (true) {
    const std::size_t x = text.find('x');
    const auto extent = extent_of(text.substr(0, x));
    if (!extent || extents.size() == std::size_t{kMaxRank}) return std::nullopt;
    extents.push_back(*extent);
    if (x == text.npos) return Shape(extents);
    text.remove_prefix(x + 1);
  }
}

std::optional<std::vector<double>> numbers_of(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    double number = entry == "true" ? 1 : 0;
    const char* end = entry.data() + entry.size();
    if (entry != "true" && entry != "false") {
      const auto [stop, error] = std::from_chars(entry.data(), end, number);
      if (error != std::errc{} || stop != end || entry.empty()) return std::nullopt;
    }
    numbers.push_back(number);
    if (comma == text.npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

KernelWish kernel_wish(std::string text) {
  const std::size_t equals = text.find('=');
  const std::size_t name = equals == std::string::npos ? 0 : equals + 1;
  const bool exclude = text.compare(name, 3, "no-") == 0;
  if (exclude) text.erase(name, 3);
  return {std::move(text), exclude};
}

}  // namespace pipit::internal::detail
