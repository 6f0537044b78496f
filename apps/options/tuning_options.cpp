#include "apps/options/tuning_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "pipit/detail/load.h"

namespace pipit::apps {

void TuningOptions::add_to(CLI::App& command) {
  CLI::Option* all = command.add_flag(
      "--autotune", all_,
      "Time every kernel that accepts a layer and take the fastest; the times are kept in the tuning cache");
  CLI::Option* none = command.add_flag("--no-autotune", none_,
                                       "Choose by the documented order alone. Without either option the CPU "
                                       "times, when a model is loaded, the "
                                       "few kernels of which only timing tells the fastest");
  command
      .add_option("--tuning-cache", file_,
                  "File with the times of earlier runs, read and added to [with --autotune: "
                  "$XDG_CACHE_HOME/pipit/tuning.json or ~/.cache/pipit/tuning.json; else none]")
      ->excludes(none)
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
  none->excludes(all);
}

std::shared_ptr<KernelTuning> TuningOptions::tuning() const {
  if (none_ || (!all_ && file_.empty())) return nullptr;
  if (!*shared_) *shared_ = detail::kernel_tuning(all_ ? Tuning::all : Tuning::at_load, file_);
  return *shared_;
}

}  // namespace pipit::apps
