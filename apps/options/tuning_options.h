// --autotune and --tuning-cache: how a command's plans choose their kernels.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "pipit/compiled_model.h"

namespace pipit::internal::apps {

class TuningOptions {
 public:
  void add_to(CLI::App& command);
  /// For runs that must not depend on timings.
  void switch_off() { measured_ = false, file_.clear(); }
  /// --tuning-cache; empty where none is named.
  const std::string& file() const { return file_; }
  void add_to(LoadOptions& options) const;

 private:
  bool measured_ = false;
  std::string file_;
};

}  // namespace pipit::internal::apps
