// What pipit prune is asked.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands/prune_report.h"
#include "apps/measuring/prune_search.h"
#include "apps/options/options.h"

namespace pipit::internal::apps {

struct PruneOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  PruneGoal goal;
  PruneSource source;
  std::string check;
  std::string mode = "auto";
  std::string importance = "second-order";
  std::string rows = "auto";
  std::optional<std::int64_t> group;
  std::optional<std::int64_t> panel;
  std::int64_t block = 16;
  bool no_refit = false;
  bool strict = false;
  double ridge = RefitOptions{}.ridge;
  std::int64_t limit = 0;
  std::int64_t calibrate = 512;

  bool takes_rows() const;
  /// INT8 kernels leave out four neighbouring channels at a time.
  std::int64_t group_size() const;
  /// Those that this machine computes together; a panel of half as many would leave out only what both halves do.
  std::int64_t panel_outputs() const;
  PruningOptions pruning() const;
  /// Throws CLI::Error for what does not go together, and for options of `command` that were given and mean nothing.
  void check_usage(const CLI::App& command) const;
};

/// Declares them, with the help.
void add_prune_options(const std::shared_ptr<PruneOptions>& options, CLI::App& command);

}  // namespace pipit::internal::apps
