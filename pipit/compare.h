/// @file
/// Whether one thing takes longer than another, by more than the noise of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// What two series of times say of each other.
enum class TimeChange : std::uint8_t {
  none,     ///< no difference that this data can show
  slower,   ///< the second is
  faster,   ///< the second is
  unknown,  ///< too few repeats to tell
};

/// The ratio of the second thing's time to the first's.
struct ComparedTimes {
  double ratio = 1;
  double low = 0;   ///< of its 95 % interval
  double high = 0;  ///< of the interval; infinite where there are too few repeats for one
  TimeChange change = TimeChange::unknown;
  std::string verdict;      ///< "slower", "faster", "no difference", "too few processes" or "too few runs"
  std::string text;         ///< in words: "1.052 [1.031, 1.071], slower"
  double margin = 0;        ///< what the interval must stay away from 1 for a verdict
  std::size_t repeats = 0;  ///< of the side with fewer
  std::string repeats_are;  ///< "runs" in turns, or "processes"
  std::optional<double> shown_from;  ///< the smallest difference that such data would show: 0.03 for 3 %
  std::optional<double>
      repeats_for_3_percent;  ///< about how many would show one of 3 %, where any number does
};

/// The same layers on both sides, or the same configuration of two sweeps.
struct ComparedLayer {
  std::string name;                    ///< of the layer
  std::string type;                    ///< "Conv"; of a sweep how it was run
  double first_ms = 0;                 ///< 0 where the first side has nothing of the kind
  double second_ms = 0;                ///< likewise
  std::optional<ComparedTimes> ratio;  ///< where both have
};

/// Two things whose times were compared.
struct TimeComparison {
  std::string first;     ///< what it is: "resnet50, fp32, batch 1, 2 threads"
  std::string second;    ///< likewise
  std::string what;      ///< "run"; "time over runs" of several streams; "geometric mean" of a sweep
  double first_ms = 0;   ///< what is compared: of the first
  double second_ms = 0;  ///< of the second
  ComparedTimes ratio;
  std::vector<ComparedLayer> layers;  ///< where both sides have some; judged together
  bool too_slow = false;  ///< slower by more than is allowed, or too few times to tell; false without a limit
};

}  // namespace pipit::tools
