/// @file
/// Results as files that people and other programs look at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// What a result can be written as.
enum class ReportForm : std::uint8_t {
  json,     ///< as it is
  csv,      ///< a table for spreadsheets (RFC 4180); of profile, bench, compare and sweeps
  html,     ///< one page for a browser, which loads nothing; of profile and sweeps
  trace,    ///< one run as it went, for Perfetto and chrome://tracing; of profile
  trtexec,  ///< layers as trtexec --exportProfile writes them; of a profile of one setting
};

/// Another form of the JSON that a result has. `sweep`: that of a sweep, which becomes part of a profile's page. Throws
/// ArgumentError where there is no such form of it, and Error for other text. May be called from any thread.
PIPIT_API std::string report(const std::string& json, ReportForm form, const std::string& sweep = {});

/// A model in a picture of accuracy against time.
struct ParetoPoint {
  double ms = 0;           ///< a run
  double accuracy = 0;     ///< in percent
  std::string label;       ///< what it is
  bool pareto = false;     ///< no other one is as fast and more accurate, or as accurate and faster
  bool chosen = false;     ///< marked, with its label
  std::string front = {};  ///< which one it belongs to, where there are several
};

/// An SVG document: one mark per point (its label as a tooltip, and beside the chosen one), a line through those of
/// each Pareto front (where there are several in colours, with numbers at their fastest points that a list below
/// explains), a dashed line at `least` percent. `what`: of accuracies (tune and prune compare models by their expected
/// drops, which vary less than those of the images). Text is escaped; nothing is loaded from elsewhere. Throws
/// ArgumentError without points.
PIPIT_API std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                                 std::optional<double> least, const std::string& what);

/// Ratios over two settings.
struct HeatMap {
  std::string title;                                       ///< above the map
  std::string columns_are;                                 ///< what they are
  std::string rows_are;                                    ///< what they are
  std::vector<std::string> columns;                        ///< their names
  std::vector<std::string> rows;                           ///< their names
  std::vector<std::vector<std::optional<double>>> ratios;  ///< [row][column], positive; none: an empty cell
};

/// An SVG document with one map below the other: cells above 1 are green, below 1 red, the stronger the further
/// (logarithmic, full at 4 and 1/4), with the number in them. Text is escaped; nothing is loaded from elsewhere.
PIPIT_API std::string heat_map_svg(const std::vector<HeatMap>& maps);

}  // namespace pipit::tools
