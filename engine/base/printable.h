// Text from outside made fit to be shown. Names in models, labels and paths come from unchecked files;
// printed raw they could move the cursor, retitle the window, reverse what is read or fake lines of pipit's.
#pragma once

#include <string>
#include <string_view>

namespace pipit::internal {

/// `text` with everything that is no plain text written out: control bytes and bytes that are not UTF-8 as
/// \x1b; the controls U+0080 to U+009F, direction marks, line separators and what is not seen (soft hyphens, joiners,
/// fillers, tags) as \u202e or \U000e0001.
std::string printable(std::string_view text);

/// printable() for keys: a backslash is written twice, so that different texts stay different.
std::string printable_key(std::string_view text);

/// printable() for messages of several lines: a newline stays where an indented line follows, as in the lists
/// that pipit writes. Any other newline is of a name.
std::string printable_lines(std::string_view text);

/// JSON text with those of them that JSON lets stand in strings written as \u202e, which means the same.
std::string printable_json(std::string_view json);

}  // namespace pipit::internal
