// The progress bar of a command whose work the library does in stages.
#pragma once

#include <optional>
#include <string>

#include "apps/display/progress.h"
#include "pipit/progress.h"

namespace pipit::internal::apps {

class StageProgress {
 public:
  /// Silent when `quiet` or when stderr is not a terminal.
  StageProgress(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet) {}

  /// For the library's options. This has to outlive them.
  tools::StageProgress callbacks();
  /// Takes the bar away.
  void end();

 private:
  std::string what_;
  bool quiet_;
  std::optional<Progress> bar_;
  ProgressReport report_;  // of the stage that goes on
};

}  // namespace pipit::internal::apps
