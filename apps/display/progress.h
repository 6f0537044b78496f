// A progress bar on stderr, shown only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pipit::internal::apps {

using ProgressReport = std::function<void(std::int64_t done, std::int64_t total)>;

/// One bar for a whole command, with the time that remains. Commands of several stages plan them; what remains is told
/// from the shares and the seconds of the stages that lie ahead, so it is about right at best.
class Progress {
 public:
  struct Stage {
    std::string name;
    double share = 1;    ///< of the time of all stages, in whatever unit
    double seconds = 0;  ///< that it takes on any machine, besides the share
  };

  /// The progress of one stage. Silent when `quiet` or when stderr is not a terminal.
  Progress(std::string what, std::int64_t total, bool quiet);
  /// The progress of several stages. One that may have to be repeated is planned as often.
  Progress(std::string what, std::vector<Stage> plan, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What goes on with the next stage of that name when it is first called; those between are left out. Where none is
  /// planned any more the bar stays where it is.
  ProgressReport stage(const std::string& name);
  /// Redraws at most ten times a second. `note` follows the bar, for example the accuracy so far.
  void update(std::int64_t done, const std::string& note = {});

 private:
  struct Work {
    double shares = 0, seconds = 0;
    void add(const Stage& stage) {
      shares += stage.share;
      seconds += stage.seconds;
    }
  };
  struct Entered {
    Work before, own;
  };
  Entered enter(const std::string& name);
  void draw(const Work& done, const std::string& text);

  std::string what_;
  std::vector<Stage> plan_;
  std::size_t at_ = 0;
  Work before_, all_;
  double done_ = 0;         // of the whole, as it is shown
  std::int64_t total_ = 0;  // of the one stage
  bool shown_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_;
};

}  // namespace pipit::internal::apps
