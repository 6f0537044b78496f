// A progress bar on stderr, shown only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pipit::apps {

class Progress {
 public:
  /// Silent when `quiet` or when stderr is not a terminal.
  Progress(std::string what, std::int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// For work whose extent is known only once it has begun.
  void set_total(std::int64_t total) { total_ = total; }
  /// Redraws at most ten times a second. `note` follows the bar, for example the accuracy so far.
  void update(std::int64_t done, const std::string& note = {});

 private:
  std::string what_;
  std::int64_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace pipit::apps
