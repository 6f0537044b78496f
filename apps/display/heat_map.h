// Ratios over two settings as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pipit::internal::apps {

struct HeatMap {
  std::string title;
  std::string columns_are, rows_are;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<std::optional<double>>> ratios;  ///< [row][column], positive; none: an empty cell
};

/// An SVG document with one map below the other: cells above 1 are green, below 1 red, the stronger the further
/// (logarithmic, full at 4 and 1/4), with the number in them. Text is escaped; nothing is loaded from elsewhere.
std::string heat_map_svg(const std::vector<HeatMap>& maps);

}  // namespace pipit::internal::apps
