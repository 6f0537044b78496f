#include "apps/tuning.h"

#include "apps/terminal.h"
#include "apps/version.h"
#include "engine/file.h"
#include "engine/tuning_cache.h"
#include "layers/cpu/isa.h"

namespace pipit::apps {

namespace fs = std::filesystem;

namespace {

void note(bool quiet, const std::string& text) {
  if (!quiet) print_error("note: " + text);
}

}  // namespace

struct TuningOptions::State {
  std::shared_ptr<Tuner> tuner;
  fs::path file;  // empty: none is used
  std::size_t saved = 0;
};

std::shared_ptr<TuningOptions::State> TuningOptions::make_state() {
  return std::make_shared<State>();
}

fs::path default_tuning_cache() {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / "tuning.json";
}

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
      ->excludes(none);
  none->excludes(all);
}

std::shared_ptr<Tuner> TuningOptions::tuner(const PlanOptions& plan, bool quiet) const {
  if (none_) return nullptr;
  if (state_->tuner) return state_->tuner;
  TunerOptions options;
  options.scope = all_ ? TuneScope::all : TuneScope::flagged;
  options.build = fmt::format("pipit {}, {}", kVersion, isa_name(chosen_isa()));
  auto tuner = std::make_shared<Tuner>(std::move(options));
  fs::path file = file_;
  if (file.empty() && all_) file = default_tuning_cache();
  if (!file.empty()) {
    TuningCache cache;
    try {
      cache = read_tuning_cache(file);
    } catch (const Error& e) {
      if (!file_.empty()) throw;
      note(quiet, fmt::format("{}; timing anew", e.what()));
    }
    const std::string device =
        tuner->device_key(plan.device, plan.gpu, plan.threads == 0 ? available_cpus() : plan.threads);
    if (!cache.empty() && cache.find(device) == cache.end()) {
      note(quiet, fmt::format("{}: nothing for {}, only for {}{}; timing anew", file.string(), device,
                              cache.begin()->first,
                              cache.size() > 1 ? fmt::format(" and {} more", cache.size() - 1) : ""));
    }
    for (auto& [name, decisions] : cache) tuner->add_decisions(name, std::move(decisions));
  }
  state_->file = std::move(file);
  state_->tuner = tuner;
  return tuner;
}

void TuningOptions::save(bool quiet) const {
  if (!state_->tuner || state_->file.empty()) return;
  const TuningCache made = state_->tuner->decisions();
  std::size_t count = 0;
  for (const auto& [device, decisions] : made) count += decisions.size();
  if (count == state_->saved) return;
  state_->saved = count;
  try {
    merge_tuning_cache(state_->file, made);
  } catch (const Error& e) {
    if (!file_.empty()) throw;
    note(quiet, e.what());
  }
}

}  // namespace pipit::apps
