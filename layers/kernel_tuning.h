// How the plans of a process choose kernels by timing, and the file that keeps what they found.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/plan/execution_plan.h"

namespace pipit::internal {

/// $XDG_CACHE_HOME/pipit/tuning.json, else ~/.cache/pipit/tuning.json; empty where neither folder is known.
std::filesystem::path default_tuning_cache();

/// One tuner for any number of plans, so that all of them time a geometry once and tell of the file once. Functions may
/// be called from several threads.
class KernelTuning {
 public:
  /// `measures`: kernels that the cache knows nothing of are timed; else they go by order, and no file is written.
  /// `file`: the tuning cache (engine/plan/tuning_cache.h). Empty: default_tuning_cache() where kernels are timed, else
  /// none.
  /// `checkpoint`: called before the kernels of a node are timed and between them; what it throws ends the work, unless
  /// that is an Error, which would be taken for one of a kernel.
  explicit KernelTuning(bool measures, std::filesystem::path file = {},
                        std::function<void()> checkpoint = {});

  /// The tuner for plans like `plan` (device, gpu, threads). Reads the cache on first use. Throws Error for a file
  /// named to the constructor that holds anything else, or that is not there to be read from; the default file, which
  /// was not asked for, gets a note and is replaced.
  std::shared_ptr<Tuner> tuner(const PlanOptions& plan);
  /// Adds what was timed since the last call to the cache. Throws Error for a file named to the constructor; for the
  /// default file a failure is a note.
  void save();
  /// What a user should know, each said once.
  std::vector<std::string> take_notes();

 private:
  void read(const PlanOptions& plan);
  std::mutex mutex_;
  bool measures_;
  bool named_;
  std::filesystem::path file_;  // empty: none is used
  std::shared_ptr<Tuner> tuner_;
  bool read_ = false;
  std::size_t saved_ = 0;
  bool told_of_lock_ = false;
  std::vector<std::string> notes_;
};

}  // namespace pipit::internal
