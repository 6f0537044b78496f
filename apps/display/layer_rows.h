// The steps of a profile with all that describes them: what tables and JSON of layers are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/platform/machine_peak.h"
#include "engine/runtime/profile.h"
#include "pipit/detail/step_info.h"

namespace pipit::apps {

using detail::step_info;
using detail::StepInfo;

struct LayerRow {
  StepInfo info;
  const Step* step = nullptr;
  std::vector<double> ms;  ///< run by run
  double median_ms = 0;
};
/// In the order in which they run. `plan` must outlive them.
std::vector<LayerRow> layer_rows(const ExecutionPlan& plan, const Profile& profile);

/// Layers of one type, or of one kernel.
struct LayerGroup {
  std::string name;
  int layers = 0;
  std::int64_t macs = 0;
  std::vector<double> ms;  ///< run by run, the sum of its layers
  double median_ms = 0;
};
enum class GroupBy { type, kernel };
/// In the order in which they first run.
std::vector<LayerGroup> layer_groups(const std::vector<LayerRow>& rows, GroupBy by);

/// 10^9 operations per second, two for each multiply-accumulate; 0 without time.
double gflops(std::int64_t macs, double ms);
/// The time that a layer's arithmetic or its bytes take at the peak, whichever is longer.
double floor_ms(const StepInfo& info, const MachinePeak& peak);

/// All convolutions together.
struct Convolutions {
  std::int64_t macs = 0;
  double ms = 0;
  explicit Convolutions(const std::vector<LayerRow>& rows);
  double share_of(double flops_per_second) const { return 1e9 * gflops(macs, ms) / flops_per_second; }
};

/// Layers that run on reference kernels, also on the host or between conversions of halves.
struct ReferenceTime {
  int steps = 0;
  double ms = 0;
  const LayerRow* slowest = nullptr;
  explicit ReferenceTime(const std::vector<LayerRow>& rows);
};

}  // namespace pipit::apps
