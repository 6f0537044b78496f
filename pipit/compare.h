/// @file
/// Whether one series of times is longer than another, by more than their noise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pipit/export.h"

namespace pipit::tools {

/// The verdict on two series of times.
enum class TimeChange : std::uint8_t {
  none,     ///< no difference that this data can show
  slower,   ///< the second is
  faster,   ///< the second is
  unknown,  ///< too few repeats to tell
};

/// The ratio of the second side's time to the first's.
struct ComparedTimes {
  double ratio = 1;
  double low = 0;   ///< of its 95 % interval
  double high = 0;  ///< of the interval; infinite if there are too few repeats for one
  TimeChange change = TimeChange::unknown;
  std::string verdict;      ///< "slower", "faster", "no difference", "too few processes" or "too few runs"
  std::string text;         ///< in words: "1.052 [1.031, 1.071], slower"
  double margin = 0;        ///< distance of the interval from 1 that a verdict requires
  std::size_t repeats = 0;  ///< of the side with fewer
  std::string repeats_are;  ///< "runs" in turns, or "processes"
  std::optional<double> shown_from;  ///< smallest difference that such data shows: 0.03 for 3 %
  std::optional<double>
      repeats_for_3_percent;  ///< about how many repeats show a difference of 3 %, if any number does
};

/// The same layers on both sides, or the same configuration of two sweeps.
struct ComparedLayer {
  std::string name;                    ///< of the layer
  std::string type;                    ///< "Conv"; for a sweep, how it was run
  double first_ms = 0;                 ///< 0 if the first side has no such layer
  double second_ms = 0;                ///< likewise
  std::optional<ComparedTimes> ratio;  ///< if both sides have it
};

/// Two sides whose times were compared.
struct TimeComparison {
  std::string first;     ///< its setting: "resnet50, fp32, batch 1, 2 threads"
  std::string second;    ///< likewise
  std::string what;      ///< "run"; "time over runs" of several streams; "geometric mean" of a sweep
  double first_ms = 0;   ///< the time compared, of the first
  double second_ms = 0;  ///< of the second
  ComparedTimes ratio;
  std::vector<ComparedLayer> layers;  ///< if both sides have layers; judged together
  bool too_slow = false;  ///< slower than allowed, or too few times to tell; false without a limit
};

/// How results are compared.
struct CompareOptions {
  std::optional<double> max_slowdown = {};  ///< largest slowdown that a whole run may show, in percent
};

/// What compare() found.
struct CompareResult {
  std::vector<TimeComparison> comparisons;  ///< of results that both files have, at least one
  bool too_slow = false;                    ///< a comparison exceeds CompareOptions::max_slowdown
  std::vector<std::string> notes;  ///< notes for the user: machines, and results without a counterpart
  std::string json;                ///< all of it, as `pipit compare --json` writes it (docs/json.md)
};

/// Compares two files with the JSON of profiles, of benches or of sweeps. A file holds one document after the other,
/// each from its own process; for sweeps also CSV, and the rows that a sweep stores. Disturbances of a whole process
/// cannot be seen inside it, so a verdict needs three processes of each side, run in turns. Throws Error, beginning
/// with the path, for other files and if the files have nothing in common; ArgumentError for invalid options. May be
/// called from any thread.
PIPIT_API CompareResult compare(const std::filesystem::path& first, const std::filesystem::path& second,
                                const CompareOptions& options = {});

}  // namespace pipit::tools
