// Rows of `pipit sweep conv`: what was measured of one convolution, and their tables and pictures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/measuring/conv_grid.h"
#include "apps/measuring/layer_run.h"
#include "apps/measuring/sampled_reference.h"

namespace pipit::apps {

struct ConvRow {
  ConvPoint point;
  std::string precision;
  std::string backend;          ///< that was asked for; "auto": the fastest
  std::string runs, base_runs;  ///< the kernels that did
  LayerTimes times;
  SampledError error;
  std::size_t bytes = 0, arena_bytes = 0;
  std::string problem;  ///< why there is nothing of all this

  /// What it is a row of.
  std::string key() const;
  nlohmann::ordered_json json() const;
  /// Throws Error for JSON that is none.
  static ConvRow from_json(const nlohmann::ordered_json& json);
};

/// Of the rows of one precision and backend that were measured.
struct ConvSummary {
  std::string precision, backend;
  std::size_t rows = 0, problems = 0;
  double geometric_mean = 0;  ///< of speed-ups
  std::size_t faster = 0;     ///< of which the whole interval is more than kPlaceEffect above 1
  std::size_t slower = 0;     ///< or below
  std::vector<ConvRow> best;  ///< by image size, the one with the largest speed-up
};
std::vector<ConvSummary> summaries(const std::vector<ConvRow>& rows);

/// Summaries, then the `top` rows with the largest speed-ups.
std::string conv_table(const std::vector<ConvRow>& rows, const std::string& base, std::size_t top, int width);
nlohmann::ordered_json summaries_json(const std::vector<ConvRow>& rows);
/// `settings`: SweepOptions::machine_json() at least.
std::string conv_csv(const std::vector<ConvRow>& rows, const nlohmann::ordered_json& settings);
/// Geometric means of speed-ups, input channels over image sizes, a map for each precision and backend. Empty where
/// nothing was measured.
std::string conv_svg(const std::vector<ConvRow>& rows, const std::string& base);

}  // namespace pipit::apps
