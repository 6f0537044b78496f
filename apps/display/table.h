// Plain text tables with columns as wide as their widest cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipit::apps {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Missing cells are empty. Cells are made printable: they may hold names from files.
  void add(std::vector<std::string> cells);
  /// Title line, then the rows, each indented by `indent` and ending in a newline, without trailing blanks.
  std::string str(int indent = 0) const;
  /// The same without the title line.
  std::string rows(int indent = 0) const;

 private:
  std::string format(int indent, bool titles) const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// 1234567 -> "1.23 M": three significant digits and a decimal prefix (k, M, G, T).
std::string with_prefix(double value);
/// "1 image", "2 images"; `more` where the plural takes other words.
std::string counted(std::int64_t count, std::string_view one, std::string_view more = {});

}  // namespace pipit::apps
