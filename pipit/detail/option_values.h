// Values of options as text, for the command and the C API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipit/types.h"

namespace pipit::internal::detail {

/// "NAME=VALUE"; names may have a '=' in them. Without one the name is empty.
std::pair<std::string, std::string_view> named_value(std::string_view text);
/// A whole number of 1 or more.
std::optional<std::int64_t> extent_of(std::string_view text);
/// "1x3x224x224": 1 to kMaxRank extents. Throws Error where they make too many elements.
std::optional<Shape> shape_of(std::string_view text);
/// "1,0.5,true": numbers, of which true is 1 and false is 0.
std::optional<std::vector<double>> numbers_of(std::string_view text);

/// "[TYPE=]NAME" or "[TYPE=]no-NAME".
struct KernelWish {
  std::string name;  ///< "[TYPE=]NAME"
  bool exclude = false;
};
KernelWish kernel_wish(std::string text);

}  // namespace pipit::internal::detail
