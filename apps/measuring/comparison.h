// Times of two things held against each other, with what the noise of both leaves to be said.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/time_ratio.h"
#include "engine/runtime/match_layers.h"

namespace pipit::internal::apps {

/// What JSON files, or a run of bench, hold about one thing.
struct TimedRuns {
  std::string command, model, device, precision, machine;  ///< command: of pipit, that measured them
  std::int64_t batch = 1;
  int threads = 0;
  int streams = 1;           ///< runs at once
  TimedProcesses processes;  ///< of whole runs

  struct Layer {
    std::string name, type;
    std::vector<std::string> nodes;
    TimedProcesses processes;
  };
  std::vector<Layer> layers;  ///< of a profile; in the order in which they run

  /// "resnet50, fp32, batch 1, 2 threads", with more than one also ", 2 streams".
  std::string text() const;
};

struct ComparedLayer {
  std::string name, type;
  double first_ms = 0, second_ms = 0;  ///< typical_ms(); 0 where a side has nothing of the kind
  std::optional<TimeRatio> ratio;      ///< where both have

  bool has_both() const { return ratio.has_value(); }
};

struct TimeComparison {
  std::string first, second;           ///< what they are
  bool of_sweeps = false;              ///< then what follows are geometric means of rows, else whole runs
  bool of_streams = false;             ///< whole runs, but the time over their number in all streams
  double first_ms = 0, second_ms = 0;  ///< typical_ms(), or medians of runs in turns
  TimeRatio ratio;
  std::vector<ComparedLayer> layers;  ///< where both sides have some; of sweeps the rows

  /// Whether `second` is shown to be slower by more than `percent`, or there are too few times to tell.
  bool fails_above(double percent) const;
};

/// compare_times() of whole runs, and compare_together() of the layers, matched by their nodes.
TimeComparison compare_runs(const TimedRuns& first, const TimedRuns& second);

/// What a user is told: "1.052 [1.031, 1.071], slower", or "0.996 [0.981, 1.012], no difference that this data can show
/// (2.2 % or more it would; 1 % after about 240 runs)".
std::string verdict_text(const TimeRatio& ratio);
/// The first line: what is compared. Like all text here it is broken between words where it is wider than `width` (0:
/// never).
std::string compared_text(const TimeComparison& comparison, int width);
/// The last line: the whole with its verdict.
std::string whole_text(const TimeComparison& comparison, int width);
/// The layers of both, and the whole.
std::string comparison_text(const TimeComparison& comparison, int width);
/// "slower", "faster", "no difference", "too few processes" or "too few runs".
std::string_view verdict_name(const TimeRatio& ratio);
/// "[1.031, 1.071]", or nothing where there is too little to tell.
std::string interval_text(const TimeRatio& ratio);
nlohmann::ordered_json comparison_json(const TimeComparison& comparison);

}  // namespace pipit::internal::apps
