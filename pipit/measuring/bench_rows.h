// Times of whole runs of models, one by one or in turns.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "pipit/bench.h"
#include "pipit/detail/bf16_gain.h"
#include "pipit/measuring/timed_model.h"

namespace pipit::internal::detail {

/// A row while it is measured.
struct MeasuredRow {
  tools::BenchRow row;
  TimedSetting setting;  ///< the requested setting until the model is loaded, then the actual one
  /// Medians of the turns, where there are others to take turns with; of streams the time of each over the number of
  /// runs in all of them.
  std::vector<double> turns_ms;
  std::optional<Bf16Gain> bf16;  ///< what bf16 could save, by kept ceilings where there are some
};

/// Loads all rows, then runs them in turns of about 10 ms, so that what disturbs one disturbs the others as much. What
/// a turn runs after its first run finds its weights where it left them; that first one is not counted. With a limit of
/// runs a turn is one run, and so is everything where there is one row. Turns of
/// streams last 100 ms, in which they start runs; what of one stream's last run the others leave alone counts as well.
/// Errors are noted in the rows; the others go on.
void measure_in_turns(const tools::BenchOptions& options, const std::shared_ptr<KernelTuning>& tuning,
                      std::span<MeasuredRow* const> rows);

}  // namespace pipit::internal::detail
