// Times of two things held against each other, with what the noise of both leaves to be said.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/time_ratio.h"
#include "engine/runtime/match_layers.h"
#include "pipit/compare.h"

namespace pipit::internal::detail {

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

/// For users and JSON.
tools::ComparedTimes compared_times(const TimeRatio& ratio);

/// compare_times() of whole runs, and compare_together() of the layers, matched by their nodes.
tools::TimeComparison compare_runs(const TimedRuns& first, const TimedRuns& second);

/// Whether the second is shown to be slower by more than `percent`, or there are too few times to tell.
bool fails_above(const tools::ComparedTimes& times, double percent);

nlohmann::ordered_json comparison_json(const tools::TimeComparison& comparison);

}  // namespace pipit::internal::detail
