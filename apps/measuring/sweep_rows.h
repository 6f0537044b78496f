// Rows of `pipit sweep sparsity`: what was measured of one variant of one layer, their tables, and the file they gather
// in.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/measuring/json_lines.h"
#include "apps/measuring/layer_run.h"

namespace pipit::internal::apps {

struct SweepRow {
  std::string layer, precision, mode;  ///< mode "dense": nothing was removed
  double keep = 1;                     ///< share asked for
  double kept = 1;                     ///< share of the multiply-accumulates that is left
  std::string kernel, dense_kernel;
  LayerTimes times;
  LayerError error;
  std::optional<LayerError> refit;
  std::string problem;  ///< why there is nothing of all this

  /// What it is a row of.
  std::string key() const;
  nlohmann::ordered_json json() const;
  /// Throws Error for JSON that is none.
  static SweepRow from_json(const nlohmann::ordered_json& json);
};

/// In at most `width` columns of text as far as ranks allow; 0: as many as it takes.
std::string sweep_table(const std::vector<SweepRow>& rows, int width);
/// `settings`: SweepOptions::machine_json() at least.
std::string sweep_csv(const std::vector<SweepRow>& rows, const nlohmann::ordered_json& settings);
/// Time against what is left of the output (1 - relative error) of all rows of one layer and precision; the fitted
/// weights' error where there is one. Empty where nothing was measured.
std::string sweep_svg(const std::vector<SweepRow>& rows);

/// The rows of a file (JsonLines) and those that come to it.
class SweepFile {
 public:
  /// As JsonLines; throws Error for lines that are no rows, too.
  SweepFile(std::string path, const nlohmann::ordered_json& settings, bool resume);

  const std::vector<SweepRow>& rows() const { return rows_; }
  bool has(const SweepRow& row) const { return keys_.contains(row.key()); }
  void append(SweepRow row);

 private:
  JsonLines lines_;
  std::vector<SweepRow> rows_;
  std::set<std::string> keys_;
};

}  // namespace pipit::internal::apps
