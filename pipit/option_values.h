/// @file
/// Values of options as text, as the command and the C API take them: for programs that have such options. All
/// functions may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipit/export.h"
#include "pipit/types.h"

namespace pipit::tools {

/// The parts of "NAME=VALUE", divided at the last '=': names may contain others. Without any the name is empty. The
/// value is a part of `text`.
PIPIT_API std::pair<std::string, std::string_view> parse_named_value(std::string_view text);
/// A whole number of 1 or more, as LoadOptions::dimensions has; nullopt for other text.
PIPIT_API std::optional<std::int64_t> parse_extent(std::string_view text);
/// "1x3x224x224": 1 to kMaxRank extents, as LoadOptions::shapes has; nullopt for other text. Throws Error if they have
/// too many elements.
PIPIT_API std::optional<Shape> parse_shape(std::string_view text);
/// "1,0.5,true": numbers, of which true is 1 and false is 0, as LoadOptions::values has; nullopt for other text.
PIPIT_API std::optional<std::vector<double>> parse_numbers(std::string_view text);

/// "[TYPE=]NAME" for a kernel to use, "[TYPE=]no-NAME" for one never to use.
struct KernelChoice {
  std::string name;      ///< "[TYPE=]NAME", for LoadOptions::prefer_kernels or LoadOptions::exclude_kernels
  bool exclude = false;  ///< for the second one
};
/// Divides such text. Checks no name: check_kernel() does.
PIPIT_API KernelChoice parse_kernel_choice(std::string_view text);
/// Throws Error, listing what there is instead, for a name that LoadOptions::prefer_kernels does not take.
PIPIT_API void check_kernel(std::string_view name);
/// The names of all kernels of this build, sorted, as ConvSweepOptions::backends takes them.
PIPIT_API std::vector<std::string> kernel_names();
/// What NAME may be in LoadOptions::prefer_kernels, sorted: a kernel, or the beginning of the names of several
/// ("winograd").
PIPIT_API std::vector<std::string> kernel_choices();

/// Throws Error for text that LoadOptions::keep does not take, other than NAME=fp32, fp16, bf16 or int8. Whether a
/// model has a layer of that name is checked when it is loaded.
PIPIT_API void check_keep(std::string_view text);

}  // namespace pipit::tools
