/// @file
/// Results as files for people and for other programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// The format of a result's file.
enum class ReportForm : std::uint8_t {
  json,     ///< unchanged
  csv,      ///< a table for spreadsheets (RFC 4180); for profile, bench, compare and sweeps
  html,     ///< one self-contained page for a browser; for profile and sweeps
  trace,    ///< the timeline of one run, for Perfetto and chrome://tracing; for profile
  trtexec,  ///< layers as trtexec --exportProfile writes them; for a profile of one setting
};

/// Converts the JSON of a result to another format. `sweep`: what read_sweep_document() returns, which becomes part of
/// a profile's page; other formats ignore it. Throws ArgumentError if the result has no such format, and Error for
/// other text, which ReportForm::json returns unread. May be called from any thread.
PIPIT_API std::string report(const std::string& json, ReportForm form, const std::string& sweep = {});

/// A point in a plot of accuracy against time.
struct ParetoPoint {
  double ms = 0;           ///< of a run
  double accuracy = 0;     ///< in percent
  std::string label;       ///< its name
  bool pareto = false;     ///< no other point is as fast and more accurate, or as accurate and faster
  bool chosen = false;     ///< marked, with its label
  std::string front = {};  ///< its Pareto front, if there are several
};

/// An SVG document with one mark per point (its label is a tooltip, and also beside the chosen point), a line through
/// each Pareto front (several fronts have colours, and numbers at their fastest points that a list below explains), and
/// a dashed line at `least` percent. `what`: label of the accuracies (tune and prune compare models by their expected
/// drops, which vary less than the measured ones). Text is escaped; nothing is loaded from elsewhere. Throws
/// ArgumentError without points and for numbers that are not finite.
PIPIT_API std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                                 std::optional<double> least, const std::string& what);

/// Ratios over two settings.
struct HeatMap {
  std::string title;                                       ///< above the map
  std::string columns_are;                                 ///< what they are
  std::string rows_are;                                    ///< what they are
  std::vector<std::string> columns;                        ///< their names
  std::vector<std::string> rows;                           ///< their names
  std::vector<std::vector<std::optional<double>>> ratios;  ///< [row][column], positive; unset: an empty cell
};

/// An SVG document with the maps below each other: cells above 1 are green, below 1 red, with a stronger colour further
/// from 1 (logarithmic, full at 4 and 1/4), and the number in them. Text is escaped; nothing is loaded from elsewhere.
/// Throws ArgumentError for ratios that are not positive and finite, and unless there is one for each row and column.
PIPIT_API std::string heat_map_svg(const std::vector<HeatMap>& maps);

}  // namespace pipit::tools
