// --autotune, --no-autotune and --tuning-cache: how a command's plans choose their kernels.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/plan.h"

namespace pipit::apps {

/// Copies share one tuner, so that all plans of a command time a geometry once and tell of its cache once.
class TuningOptions {
 public:
  void add_to(CLI::App& command);
  /// As --no-autotune, for runs that must not depend on timings.
  void switch_off() { all_ = false, none_ = true; }
  /// The tuner for plans like `plan` (device, gpu, threads), null with --no-autotune. Reads the cache on first use:
  /// a file named by --tuning-cache that holds anything else is an Error, one found by default is told of on
  /// stderr, unless `quiet`, and replaced.
  std::shared_ptr<Tuner> tuner(const PlanOptions& plan, bool quiet) const;
  /// Adds what was timed since the last call to the cache. Throws Error for a file named by --tuning-cache; for
  /// the default file, which nobody asked for, a failure is a note.
  void save(bool quiet) const;

 private:
  struct State;
  bool all_ = false;
  bool none_ = false;
  std::string file_;
  std::shared_ptr<State> state_ = make_state();
  static std::shared_ptr<State> make_state();
};

/// $XDG_CACHE_HOME/pipit/tuning.json, else ~/.cache/pipit/tuning.json; empty where neither folder is known.
std::filesystem::path default_tuning_cache();

}  // namespace pipit::apps
