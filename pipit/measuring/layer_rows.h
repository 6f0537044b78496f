// The steps of a profile with all that describes them: what tables and JSON of layers are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/profile.h"
#include "pipit/detail/floors.h"
#include "pipit/detail/step_info.h"
#include "pipit/profile.h"

namespace pipit::internal::detail {

struct LayerRow {
  StepInfo info;
  const Step* step = nullptr;
  std::vector<double> ms;  ///< run by run
  double median_ms = 0;
  double p10_ms = 0;
  std::optional<StepFloor> floor;  ///< where ceilings are known
};
/// In the order in which they run. `plan` must outlive them.
std::vector<LayerRow> layer_rows(const ExecutionPlan& plan, const Profile& profile,
                                 const Ceilings& ceilings = {});

/// Layers of one type, or of one kernel.
struct GroupedLayers {
  std::string name;
  int layers = 0;
  std::int64_t macs = 0;
  std::vector<double> ms;  ///< run by run, the sum of its layers
  double median_ms = 0;
};
/// In the order in which they first run.
std::vector<GroupedLayers> layer_groups(const std::vector<LayerRow>& rows, tools::GroupBy by);

/// 10^9 operations per second, two for each multiply-accumulate; 0 without time.
double gflops(std::int64_t macs, double ms);

/// All convolutions together. What they multiply is what their kernels do.
struct Convolutions {
  std::int64_t macs = 0;
  double ms = 0;
  double at_peak_ms = 0;   ///< what their arithmetic takes at its ceilings, where there are any
  double in_tiles_ms = 0;  ///< and at the rate of tiles whose operands lie in the first-level cache
  explicit Convolutions(const std::vector<LayerRow>& rows);
};

/// Floors of all layers.
struct FloorSum {
  double ms = 0;
  /// The part of `ms` that each bound has, the largest first.
  std::vector<std::pair<std::string, double>> bounds;
  explicit FloorSum(const std::vector<LayerRow>& rows);
};

/// For users, where layers ran in less than their floor, which says that the ceilings are too low: how many, and by how
/// much at most; else empty. What one run in ten undercuts counts, on a GPU by more than kernels overlap.
std::string beaten_floors_note(const std::vector<LayerRow>& rows, bool on_gpu);

/// For users, where reference kernels, which are plain loops, take more than a hundredth of the layers' time: how much,
/// and which; else empty.
std::string reference_note(const std::vector<LayerRow>& rows, const Profile& profile);

/// Layers that run on reference kernels, also on the host or between conversions of halves.
struct ReferenceTime {
  int steps = 0;
  double ms = 0;
  const LayerRow* slowest = nullptr;
  explicit ReferenceTime(const std::vector<LayerRow>& rows);
};

}  // namespace pipit::internal::detail
