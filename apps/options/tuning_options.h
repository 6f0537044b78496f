// --autotune and --tuning-cache: how a command's plans choose their kernels.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "layers/kernel_tuning.h"
#include "pipit/compiled_model.h"

namespace pipit::internal::apps {

/// Copies share one tuner once tuning() was called.
class TuningOptions {
 public:
  void add_to(CLI::App& command);
  /// For runs that must not depend on timings.
  void switch_off() { measured_ = false, file_.clear(); }
  /// --tuning-cache; empty where none is named.
  const std::string& file() const { return file_; }
  void add_to(LoadOptions& options) const;
  /// Null where nothing is timed and no cache named.
  std::shared_ptr<KernelTuning> tuning() const;

 private:
  bool measured_ = false;
  std::string file_;
  std::shared_ptr<std::shared_ptr<KernelTuning>> shared_ = std::make_shared<std::shared_ptr<KernelTuning>>();
};

}  // namespace pipit::internal::apps
