#include "apps/options/tuning_options.h"

#include <fmt/format.h>

#include <filesystem>

namespace pipit::internal::apps {

void TuningOptions::add_to(CLI::App& command) {
  command.add_flag("--autotune", measured_,
                   "Time every kernel that accepts a layer, use the fastest, and keep the times in the "
                   "tuning cache. Without it, kernels are chosen by estimated time and a fixed order");
  command
      .add_option(
          "--tuning-cache", file_,
          "File with the times of earlier runs, by which kernels are chosen; --autotune adds to it [with "
          "--autotune: $XDG_CACHE_HOME/pipit/tuning.json or ~/.cache/pipit/tuning.json; else none]")
      ->type_name("FILE")
      ->check(CLI::Validator(
          [](const std::string& path) {
            const std::filesystem::path folder = std::filesystem::path(path).parent_path();
            std::error_code problem;
            return folder.empty() || std::filesystem::is_directory(folder, problem)
                       ? std::string{}
                       : fmt::format("there is no folder '{}'", folder.string());
          },
          ""));
}

void TuningOptions::add_to(LoadOptions& options) const {
  options.kernels.tuning = measured_ ? Tuning::all : Tuning::by_order;
  options.kernels.cache = file_;
}

}  // namespace pipit::internal::apps
