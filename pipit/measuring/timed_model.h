// Models that are timed in several settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipit/measuring/runner.h"
#include "pipit/timing.h"

namespace pipit::internal::detail {

struct TimedSetting {
  ModelPrecision precision;
  std::optional<std::int64_t> batch;  ///< unset: 1, or what the file fixes
  int threads = 0;                    ///< not 0; of all streams together
  int streams = 1;                    ///< sessions of one plan that run at once

  /// "fp32, batch 8, 2 threads", "fp32, batch 8, 2 threads, 2 streams".
  std::string text() const;
};

/// All combinations, streams innermost. Throws ArgumentError for values out of range.
std::vector<TimedSetting> settings_of(const tools::TimingOptions& options,
                                      const std::vector<int>& streams = {});

/// A model in one setting, with its inputs.
struct TimedModel {
  std::unique_ptr<Runner> runner;
  std::vector<Tensor> inputs;
  std::vector<ConstTensorView> views;  ///< of `inputs`
  double read_ms = 0;                  ///< reading the file
  double ready_ms = 0;                 ///< from opening it until the plan was there

  /// `tuning`: kernel_tuning() of the options, shared by all settings. Of a stream the runner has as many threads as
  /// any has at most.
  TimedModel(const std::string& model, const tools::TimingOptions& options, const TimedSetting& setting,
             const std::shared_ptr<KernelTuning>& tuning);
  /// Calls options.note with what a user should know.
  void tell_notes(const tools::TimingOptions& options) const;
  /// Samples of a run, at least 1: the file may have set it, or RunShapes::dimensions.
  std::int64_t samples() const;
};

}  // namespace pipit::internal::detail
