// Comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace pipit::internal::detail {

/// Quoted where it must be.
inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// A name from a file: made printable, and with an apostrophe before what a spreadsheet takes for a formula: a sign
/// at the beginning, or after a semicolon, which separates cells in some languages; also after blanks of any kind, and
/// in its full-width form.
std::string csv_name(const std::string& name);

/// One line of cells that are not quoted yet, with RFC 4180's end.
inline std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + csv_cell(cells[i]);
  return line + "\r\n";
}

}  // namespace pipit::internal::detail
