// Plain text tables with columns as wide as their widest cell, or narrowed to the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/text.h"

namespace pipit::internal::apps {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Where the table is too wide, columns go one by one, the highest rank first; 0 stays.
    int rank = 0;
    /// Long cells of names lose their middle before a column goes, or their beginning where fewer look the same then.
    bool name = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Missing cells are empty. Cells are made printable: they may hold names from files.
  void add(std::vector<std::string> cells);
  /// Title line, then the rows, each indented by `indent` and ending in a newline, without trailing blanks. Lines have
  /// at most `width` characters (0: no limit) if dropping low-ranked columns and shortening names suffices. Columns in
  /// which every cell is empty are omitted.
  std::string str(int indent = 0, int width = 0) const;
  /// The same without the title line.
  std::string rows(int indent = 0) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::vector<std::size_t> fitting_widths(std::size_t room) const;
  // Whether in `width` columns of text more cells can be told apart by their ends than without their middles.
  bool differ_at_ends(std::size_t column, std::size_t width) const;
  std::string format(int indent, bool titles, const std::vector<std::size_t>& widths) const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// `text` in at most `width` columns: where it is longer, "..." stands for its middle. At least 5 columns.
std::string shortened(const std::string& text, std::size_t width);
/// Lines of `text` that are longer than `width` (0: none are) broken between words, what follows indented by `indent`.
std::string wrapped(std::string_view text, std::size_t indent, int width);
/// 1234567 -> "1.23 M": three significant digits and a decimal prefix (k, M, G, T).
std::string with_prefix(double value);

}  // namespace pipit::internal::apps
