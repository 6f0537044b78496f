// What pipit prune is asked.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/options/options.h"
#include "pipit/prune.h"

namespace pipit::internal::apps {

struct PruneOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  tools::PruneOptions how;  ///< what the library takes as it is given here
  std::string images, check, output, svg;
  std::string mode = "auto";
  std::string importance = "second-order";
  std::string rows = "auto";
  bool no_refit = false;
  bool wide = false;  ///< its tables have all columns

  /// All that the library takes, but progress and notes.
  tools::PruneOptions library_options() const;
  /// Throws CLI::Error for what does not go together, and for options of `command` that were given and mean nothing.
  void check_usage(const CLI::App& command) const;
};

/// Declares them, with the help.
void add_prune_options(const std::shared_ptr<PruneOptions>& options, CLI::App& command);

}  // namespace pipit::internal::apps
