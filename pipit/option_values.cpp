#include "pipit/option_values.h"

#include <charconv>
#include <set>

#include "layers/kernel_names.h"
#include "layers/registry.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

std::pair<std::string, std::string_view> parse_named_value(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == text.npos) return {};
  return {std::string(text.substr(0, equals)), text.substr(equals + 1)};
}

std::optional<std::int64_t> parse_extent(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ptr != end || value < 1) return std::nullopt;
  return value;
}

std::optional<Shape> parse_shape(std::string_view text) {
  std::vector<std::int64_t> extents;
  while (true) {
    const std::size_t x = text.find('x');
    const auto extent = parse_extent(text.substr(0, x));
    if (!extent || extents.size() == std::size_t{kMaxRank}) return std::nullopt;
    extents.push_back(*extent);
    if (x == text.npos) return Shape(extents);
    text.remove_prefix(x + 1);
  }
}

std::optional<std::vector<double>> parse_numbers(std::string_view text) {
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

KernelChoice parse_kernel_choice(std::string_view text) {
  std::string name(text);
  const std::size_t equals = name.find('=');
  const std::size_t begin = equals == std::string::npos ? 0 : equals + 1;
  const bool exclude = name.compare(begin, 3, "no-") == 0;
  if (exclude) name.erase(begin, 3);
  return {std::move(name), exclude};
}

void check_kernel(std::string_view name) {
  internal::kernels_named(name, internal::default_registry());
}

std::vector<std::string> kernel_names() {
  std::set<std::string> names = internal::default_registry().kernel_names();
  // The forms of a kernel have its name and more: "tile, 16-bit storage".
  std::erase_if(names, [](const std::string& name) { return name.find(", ") != std::string::npos; });
  return {names.begin(), names.end()};
}

std::vector<std::string> kernel_choices() {
  const std::set<std::string> names = internal::known_kernels(internal::default_registry());
  return {names.begin(), names.end()};
}

void check_keep(std::string_view text) {
  internal::parse_keep(text);
}

}  // namespace pipit::tools
