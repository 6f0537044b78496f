#include "pipit/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipit/error.h"
#include "pipit/report/svg_text.h"

namespace pipit::tools {

using namespace internal::detail;

namespace {

constexpr int kCell = 64, kHigh = 30, kNamesWidth = 110, kTitleHeight = 62, kBelow = 28;

// White at 1, and towards one of two colours by the logarithm.
std::string colour(double ratio) {
  const double share = std::clamp(std::log(ratio) / std::log(4.0), -1.0, 1.0);
  const int full[2][3] = {{214, 84, 74}, {52, 150, 96}};
  const int* to = full[share > 0 ? 1 : 0];
  const auto mixed = [&](int c) { return static_cast<int>(std::lround(255 + (c - 255) * std::abs(share))); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(to[0]), mixed(to[1]), mixed(to[2]));
}

void check_ratios(const HeatMap& map) {
  if (map.ratios.size() != map.rows.size())
    throw ArgumentError(fmt::format("the map '{}' has {} rows of ratios; expected {}, one for each name",
                                    map.title, map.ratios.size(), map.rows.size()));
  for (const std::vector<std::optional<double>>& row : map.ratios) {
    if (row.size() != map.columns.size())
      throw ArgumentError(fmt::format("the map '{}' has a row of {} ratios; expected {}, one for each column",
                                      map.title, row.size(), map.columns.size()));
    for (const std::optional<double>& ratio : row) {
      if (ratio && !(*ratio > 0 && std::isfinite(*ratio)))
        throw ArgumentError(
            fmt::format("the map '{}' has a ratio of {}; expected a finite one above 0", map.title, *ratio));
    }
  }
}

}  // namespace

std::string heat_map_svg(const std::vector<HeatMap>& maps) {
  std::size_t columns = 1;
  int height = 12;
  for (const HeatMap& map : maps) {
    check_ratios(map);
    columns = std::max(columns, map.columns.size());
    height += kTitleHeight + kHigh * static_cast<int>(map.rows.size()) + kBelow;
  }
  const int width = std::max(520, kNamesWidth + kCell * static_cast<int>(columns) + 20);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      width, height);
  const auto text = [&](int x, int y, const char* anchor, const std::string& words, const char* more = "") {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                       svg_text(words));
  };
  int top = 12;
  for (const HeatMap& map : maps) {
    text(12, top + 14, "start", map.title, " font-weight=\"bold\"");
    text(kNamesWidth + kCell * static_cast<int>(map.columns.size()) / 2, top + 36, "middle", map.columns_are);
    text(12, top + 54, "start", map.rows_are);
    for (std::size_t c = 0; c < map.columns.size(); ++c)
      text(kNamesWidth + kCell * static_cast<int>(c) + kCell / 2, top + 54, "middle", map.columns[c]);
    for (std::size_t r = 0; r < map.rows.size(); ++r) {
      const int y = top + kTitleHeight + kHigh * static_cast<int>(r);
      text(kNamesWidth - 10, y + 20, "end", map.rows[r]);
      for (std::size_t c = 0; c < map.columns.size(); ++c) {
        const std::optional<double>& ratio = map.ratios[r][c];
        if (!ratio) continue;
        const int x = kNamesWidth + kCell * static_cast<int>(c);
        svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x, y,
                           kCell - 2, kHigh - 2, colour(*ratio));
        text(x + kCell / 2, y + 19, "middle", fmt::format("{:.2f}", *ratio));
      }
    }
    top += kTitleHeight + kHigh * static_cast<int>(map.rows.size()) + kBelow;
  }
  return svg + "</svg>\n";
}

}  // namespace pipit::tools
