// Names that look alike are the same: letters with marks are written as one code point or as several.
#pragma once

#include <string>
#include <string_view>

namespace pipit::internal {

/// UTF-8 with every letter taken apart into its base and its marks (Unicode's NFD, as macOS names files), except that
/// the marks of a letter are in the order of their code points: two names are equal so if they are canonically
/// equivalent. Bytes that are not UTF-8 stay as they are.
std::string taken_apart(std::string_view text);

}  // namespace pipit::internal
