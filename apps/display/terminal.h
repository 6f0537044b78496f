// Output to a terminal.
#pragma once

#include <string>
#include <string_view>

#include "pipit/text.h"

namespace pipit::internal::apps {

/// Columns of text of the terminal that stdout, or another open file, is; 0 where it is none, or does not know.
int terminal_width(int file = 1);

/// What tables and text on stdout have to fit, unless --wide asks for all; 0: nothing.
inline int table_width(bool wide) {
  return wide ? 0 : terminal_width();
}

/// Writes "pipit: MESSAGE" to stderr, made printable and at most 20 lines long; on a terminal lines are broken
/// between words, but for those that begin with a blank: commands, to be copied. Never throws: when stderr cannot be
/// written there is nowhere left to say so, and the exit code still tells.
void print_error(std::string_view message) noexcept;

/// Writes to stderr; failures are ignored as in print_error.
void write_stderr(const std::string& text) noexcept;

/// Shows one line at the end of stderr, a terminal, instead of the one that was shown before; "" takes it away, and so
/// does print_error() before it writes.
void show_status_line(const std::string& line) noexcept;

}  // namespace pipit::internal::apps
