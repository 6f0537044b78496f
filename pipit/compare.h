/// @file
/// Whether one thing takes longer than another, by more than the noise of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

/// How results are compared.
struct CompareOptions {
  std::optional<double> max_slowdown;  ///< the largest one that a whole run may show, in percent
};

/// What compare() found.
struct CompareResult {
  std::vector<TimeComparison> comparisons;  ///< of what both files have, at least one
  bool too_slow = false;                    ///< one of them is, by CompareOptions::max_slowdown
  std::vector<std::string> notes;  ///< what a user should know: machines, and what has no counterpart
  std::string json;                ///< all of it, as `pipit compare --json` writes it (docs/json.md)
};

/// Compares two files with the JSON of profiles, of benches, or of sweeps, one document after the other, each of a
/// process of its own; of sweeps also CSV and the rows that they keep. Disturbances of a whole process cannot be seen
/// inside it, so a verdict takes three processes of each side, run in turns. Throws Error, beginning with the path, for
/// other files and where nothing is in common; ArgumentError for options that cannot be. May be called from any thread.
PIPIT_API CompareResult compare(const std::filesystem::path& first, const std::filesystem::path& second,
                                const CompareOptions& options = {});

}  // namespace pipit::tools
