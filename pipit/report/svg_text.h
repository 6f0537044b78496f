// Text inside of SVG documents.
#pragma once

#include <string>

namespace pipit::internal::detail {

/// As it may stand in an element or an attribute; control characters as printable() shows them.
std::string svg_text(const std::string& text);

}  // namespace pipit::internal::detail
