// Rows of `pipit sweep conv`: what was measured of one variant of one convolution.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/measuring/conv_grid.h"
#include "apps/measuring/layer_times.h"
#include "apps/measuring/sampled_reference.h"

namespace pipit::internal::apps {

/// What a row is held against.
struct ConvBase {
  std::string base;  ///< as --base names it
  std::string runs;  ///< the kernel, or the plan of a library's
  double ms = 0;
  MedianInterval speedup;  ///< of the row, over turns
  double cached_ms = 0;    ///< on a GPU with operands in its second-level cache; 0: not measured
  MedianInterval cached_speedup;
  std::string problem;  ///< why there is nothing of all this
};

struct ConvRow {
  ConvPoint point;
  std::string precision;
  std::string backend;  ///< that was asked for; "auto": the fastest
  std::string runs;     ///< the kernel that did
  RunTimes times;
  double cached_ms = 0;  ///< as of ConvBase
  double floor_ms = 0;   ///< what it takes at least; 0: not asked for
  std::string binds;     ///< what so long
  std::vector<ConvBase> against;
  SampledError error;
  std::size_t bytes = 0, arena_bytes = 0;
  std::string problem;  ///< why there is nothing of all this

  /// What it is a row of.
  std::string key() const;
  /// "int8", or "int8, tile".
  std::string how() const;
  /// Null where it was not measured against that.
  const ConvBase* find(const std::string& base) const;
  nlohmann::ordered_json json() const;
  /// Throws Error for JSON that is none.
  static ConvRow from_json(const nlohmann::ordered_json& json);
};

/// `settings`: SweepOptions::machine_json() at least. `bases`: a group of columns for each.
std::string conv_csv(const std::vector<ConvRow>& rows, const nlohmann::ordered_json& settings,
                     const std::vector<std::string>& bases);

}  // namespace pipit::internal::apps
