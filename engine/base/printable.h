// printable() of pipit/text.h for keys and for JSON.
#pragma once

#include <string>
#include <string_view>

#include "pipit/text.h"

namespace pipit::internal {

/// printable() for keys: a backslash is written twice, so that different texts stay different.
std::string printable_key(std::string_view text);

/// JSON text with what printable() escapes and JSON allows in strings written as \u202e, which means the same.
std::string printable_json(std::string_view json);

}  // namespace pipit::internal
