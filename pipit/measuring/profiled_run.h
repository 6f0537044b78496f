// One model profiled in one setting.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/platform/device.h"
#include "pipit/measuring/layer_rows.h"

namespace pipit::internal::detail {

/// What was measured.
struct ProfiledRun {
  std::string model, label;
  std::shared_ptr<const ExecutionPlan> plan;
  Profile profile;
  Ceilings ceilings;           ///< with ProfileOptions::floors only
  std::vector<LayerRow> rows;  ///< of `plan`
  std::int64_t samples = 1;
  double read_ms = 0, load_ms = 0, first_run_ms = 0;
  DeviceMemory device_memory;                      ///< on a GPU
  std::size_t resident_bytes = 0, peak_bytes = 0;  ///< of the process
  std::string inputs;                              ///< files that they are from; empty: random numbers

  bool on_gpu() const { return plan->options().device == DeviceKind::cuda; }
  /// After the runs: what the process holds, then the ceilings, whose measurement takes memory, and the rows. `note` as
  /// machine_ceilings() takes it.
  void look_around(bool floors, const std::function<void(const std::string&)>& note);
};

/// For users, without `json`.
tools::ModelProfile model_profile(const ProfiledRun& run, std::optional<tools::GroupBy> group_by = {});
/// Its document.
nlohmann::ordered_json profile_json(const ProfiledRun& run, std::optional<tools::GroupBy> group_by = {});

tools::MachineCeilings public_ceilings(const Ceilings& ceilings);

}  // namespace pipit::internal::detail
