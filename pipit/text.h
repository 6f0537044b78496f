/// @file
/// Text for people: names from files made fit to be shown, numbers of things, sizes, suggestions. All functions may be
/// called from any thread and throw nothing but std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pipit/export.h"

namespace pipit {

/// `text` with everything that is no plain text written out. Names in models, labels and paths come from unchecked
/// files; printed as they are they could move the cursor, retitle the window, reverse what is read or fake lines of the
/// program. Control bytes and bytes that are not UTF-8 become \x1b; the controls U+0080 to U+009F, direction marks,
/// line separators and invisible characters (soft hyphens, joiners, fillers, tags) become \u202e or \U000e0001.
PIPIT_API std::string printable(std::string_view text);

/// printable() for messages of several lines, such as those of exceptions: a newline stays if an indented line follows,
/// as in the lists that pipit writes. Any other newline is part of a name.
PIPIT_API std::string printable_lines(std::string_view text);

/// The first `count` lines; "... and N more" stands for the others. A model may lack hundreds of operators.
PIPIT_API std::string first_lines(std::string_view text, int count = 20);

/// "1 image", "2 images"; `more` if the plural has other words.
PIPIT_API std::string counted(std::int64_t count, std::string_view one, std::string_view more = {});

/// "1.50 MiB".
PIPIT_API std::string mebibytes(std::size_t bytes);

/// "; did you mean 'a', 'b'?" with the (at most three) candidates nearest to `name` by edit distance, those that
/// contain it first; "" if none is near.
PIPIT_API std::string near_names(std::string_view name, std::span<const std::string> candidates);

/// The word itself if a POSIX shell takes it unchanged, else in single quotes.
PIPIT_API std::string shell_word(std::string_view word);

}  // namespace pipit
