/// @file
/// How far long work is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pipit::tools {

/// A part of some work.
struct Stage {
  std::string name;    ///< "comparing"; a repeated stage is listed once per repetition
  double share = 1;    ///< approximate share of the time of all stages, in any unit
  double seconds = 0;  ///< fixed time on any machine, in addition to the share
};

/// Reports the progress of work of several stages. Calls come one at a time, in any thread. An exception from them ends
/// the work and reaches the caller unchanged; files are then as before.
struct StageProgress {
  /// Before the first stage: all of them, in order. May be empty.
  std::function<void(const std::vector<Stage>& stages)> planned;
  /// As a stage goes on: its name, and what is done of its own total. May be empty.
  std::function<void(const std::string& stage, std::int64_t done, std::int64_t total)> update;
};

}  // namespace pipit::tools
