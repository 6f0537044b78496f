#include "pipit/profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/platform/float_mode.h"
#include "engine/platform/host_memory.h"
#include "engine/runtime/profiler.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/load.h"
#include "pipit/detail/stages.h"
#include "pipit/measuring/accuracy_file.h"
#include "pipit/measuring/joined_layers.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/machine.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/profiled_run.h"
#include "pipit/measuring/timed_model.h"
#include "pipit/measuring/timing.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

using Json = nlohmann::ordered_json;

// What is said once however many settings there are. Looked at before anything runs, which is load itself.
struct Surroundings {
  std::string measured_at = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  std::vector<Finding> environment;
  Json accuracy;

  explicit Surroundings(DeviceKind device) : environment(measuring_environment(device == DeviceKind::cuda)) {}

  void add_to(Json& json) const {
    json["measured_at"] = measured_at;
    json["environment"] = Json::array();
    for (const Finding& f : environment)
      json["environment"].push_back({{"name", f.name}, {"value", f.value}});
    if (!accuracy.is_null()) json["accuracy"] = accuracy;
  }
};

constexpr char kRunning[] = "running";

void check_runs(int runs, int warmup) {
  if (runs < 1) throw ArgumentError(fmt::format("runs is {}; expected 1 or more", runs));
  if (warmup < 0) throw ArgumentError(fmt::format("warmup is {}; expected 0 or more", warmup));
}

void check(const ProfileModelOptions& options) {
  check_runs(options.runs, options.warmup);
  check_device(options.timing.load.device);
  check_enumerator("group_by", options.group_by, GroupBy::kernel);
}

// What sets it apart from the others: "int8, 2 threads".
std::string label_of(const TimingOptions& options, const TimedSetting& setting, const ProfiledRun& run) {
  std::vector<std::string> parts;
  if (options.precisions.size() > 1) parts.emplace_back(precision_name(computed_precision(*run.plan)));
  if (options.batches.size() > 1) parts.push_back(fmt::format("batch {}", run.samples));
  if (options.threads.size() > 1) parts.push_back(counted(setting.threads, "thread"));
  return fmt::format("{}", fmt::join(parts, ", "));
}

ProfiledRun measured(const std::string& model, const ProfileModelOptions& options,
                     const TimedSetting& setting, const std::shared_ptr<KernelTuning>& tuning) {
  reset_peak_resident_memory();
  TimedModel timed(model, options.timing, setting, tuning);
  timed.tell_notes(options.timing);
  Runner& runner = *timed.runner;
  ProfiledRun run;
  run.model = runner.model;
  run.plan = runner.plan;
  run.read_ms = timed.read_ms;
  run.load_ms = runner.load_ms;
  run.samples = timed.samples();
  run.label = label_of(options.timing, setting, run);
  run.inputs = fmt::format("{}", fmt::join(options.timing.inputs, " "));
  const auto begin = Clock::now();
  runner.run(timed.views);
  run.first_run_ms = milliseconds_since(begin);
  run.profile = passing_stops([&] {
    return runner.profile(timed.views, options.warmup, options.runs, [&](int done) {
      stopping([&] { report_stage(options.progress, setting.text(), done, options.warmup + options.runs); });
    });
  });
  run.look_around(options.floors, options.timing.note);
  return run;
}

// One for all settings, of the first that bf16 could make faster; none where bf16 is measured anyway.
void add_bf16_note(const std::string& model, const std::vector<ProfiledRun>& runs,
                   std::vector<std::string>& notes) {
  const auto in_bf16 = [](const ProfiledRun& run) {
    return run.plan->options().precision == Precision::bf16;
  };
  if (std::ranges::any_of(runs, in_bf16)) return;
  for (const ProfiledRun& run : runs) {
    const std::optional<Bf16Gain> gain = bf16_gain_here(*run.plan, run.ceilings);
    if (gain) return notes.push_back(bf16_note(model, *gain));
  }
}

Json document_json(const ProfileModelOptions& options, const Surroundings& surroundings,
                   const std::vector<ProfiledRun>& runs, const std::vector<JoinedLayer>& joined) {
  Json json;
  if (runs.size() == 1) {
    json = profile_json(runs[0], options.group_by);
    surroundings.add_to(json);
    return json;
  }
  json["pipit"] = version();
  json["command"] = "profile";
  json["schema"] = kTimesSchema;
  surroundings.add_to(json);
  json["results"] = Json::array();
  for (const ProfiledRun& run : runs) json["results"].push_back(profile_json(run, options.group_by));
  json["joined"] = joined_json(joined);
  return json;
}

}  // namespace

ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs,
                     const ProfileOptions& options) {
  const ScopedFloatMode mode;
  check_runs(options.runs, options.warmup);
  if (options.device < 0 || options.device >= model.devices())
    throw ArgumentError(fmt::format("{}: there is no device {}; it was compiled for {}", model.name(),
                                    options.device, model.devices()));
  plan_stages(options.progress, {{kRunning}});
  report_stage(options.progress, kRunning, 0, options.warmup + options.runs);
  const CompiledState& state = model.state();
  ProfiledRun run;
  run.model = model.name();
  run.plan = state.plans[static_cast<std::size_t>(options.device)];
  run.read_ms = state.read_ms;
  run.load_ms = state.load_ms;
  const Surroundings surroundings(run.plan->options().device);
  std::vector<Tensor> made;
  std::vector<ConstTensorView> views;
  if (inputs.empty()) {
    made = random_inputs(run.plan->graph());
    for (const Tensor& tensor : made) views.push_back(tensor.view());
  }
  for (const ArrayView& given : inputs)
    views.push_back({TensorDesc{given.shape, given.dtype}, static_cast<const std::byte*>(given.data)});
  run.profile = passing_stops([&] {
    return naming(model.name(), [&] {
      Session session(run.plan);
      const auto begin = Clock::now();
      session.run(views);  // checks the inputs
      run.first_run_ms = milliseconds_since(begin);
      return profile_session(session, views, options.warmup, options.runs, [&](int done) {
        stopping([&] { report_stage(options.progress, kRunning, done, options.warmup + options.runs); });
      });
    });
  });
  if (!views.empty() && views[0].desc.shape.rank() > 0)
    run.samples = std::max<std::int64_t>(views[0].desc.shape[0], 1);
  run.look_around(options.floors, {});
  ModelProfile result = model_profile(run);
  Json json = profile_json(run);
  surroundings.add_to(json);
  result.json = json_text(json);
  return result;
}

ProfileResult profile_model(const std::string& model, const ProfileModelOptions& options) {
  check(options);
  const ScopedFloatMode mode;
  const LoadOptions& load = options.timing.load;
  const std::vector<TimedSetting> settings = settings_of(options.timing);
  Surroundings surroundings(load.device.kind);
  if (!options.accuracy.empty()) surroundings.accuracy = read_accuracy(options.accuracy.string());
  const std::shared_ptr<KernelTuning> tuning = kernel_tuning(load.kernels);
  if (options.progress.planned) {
    std::vector<Stage> stages;
    for (const TimedSetting& setting : settings) stages.push_back({setting.text()});
    options.progress.planned(stages);
  }
  std::vector<ProfiledRun> runs;
  for (const TimedSetting& setting : settings) runs.push_back(measured(model, options, setting, tuning));
  ProfileResult result;
  result.measured_at = surroundings.measured_at;
  result.environment = surroundings.environment;
  for (const ProfiledRun& run : runs) result.profiles.push_back(model_profile(run, options.group_by));
  if (runs.size() > 1) {
    result.joined = joined_layers(runs);
    result.joined_totals = joined_totals(runs);
  }
  add_bf16_note(model, runs, result.notes);
  result.json = json_text(document_json(options, surroundings, runs, result.joined));
  return result;
}

}  // namespace pipit::tools
