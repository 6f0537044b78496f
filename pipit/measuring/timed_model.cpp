#include "pipit/measuring/timed_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/platform/thread_pool.h"
#include "pipit/detail/preparation.h"
#include "pipit/measuring/input_file.h"
#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

// How a model is compiled in that setting.
LoadOptions load_options(const LoadOptions& given, const TimedSetting& setting) {
  LoadOptions load = given;
  load.precision = setting.precision;
  load.shapes.batch = setting.batch;
  const bool shared = load.device.kind == DeviceKind::cpu;
  load.device.threads = shared ? (setting.threads + setting.streams - 1) / setting.streams : setting.threads;
  return load;
}

template <typename T>
void check_least(const std::vector<T>& values, T least, const char* what) {
  for (const T value : values) {
    if (value < least) throw ArgumentError(fmt::format("{}: {}; expected {} or more", what, value, least));
  }
}

}  // namespace

std::string TimedSetting::text() const {
  return fmt::format("{}, batch {}, {}{}", precision.name(), batch.value_or(1), counted(threads, "thread"),
                     streams > 1 ? fmt::format(", {} streams", streams) : "");
}

std::vector<TimedSetting> settings_of(const tools::TimingOptions& options, const std::vector<int>& streams) {
  check_least<std::int64_t>(options.batches, 1, "batches");
  check_least(options.threads, 0, "threads");
  check_least(streams, 1, "streams");
  const LoadOptions& load = options.load;
  const auto all = [](const auto& list, const auto& otherwise) {
    return list.empty() ? std::vector{otherwise} : list;
  };
  std::vector<std::optional<std::int64_t>> batches(options.batches.begin(), options.batches.end());
  if (batches.empty()) batches.push_back(load.shapes.batch);
  std::vector<TimedSetting> settings;
  for (const ModelPrecision& precision : all(options.precisions, load.precision)) {
    for (const auto& batch : batches) {
      for (const int threads : all(options.threads, load.device.threads)) {
        for (const int sessions : all(streams, 1))
          settings.push_back({precision, batch, threads == 0 ? default_threads() : threads, sessions});
      }
    }
  }
  return settings;
}

TimedModel::TimedModel(const std::string& model, const tools::TimingOptions& options,
                       const TimedSetting& setting, const std::shared_ptr<KernelTuning>& tuning) {
  const auto begin = Clock::now();
  const LoadOptions load = load_options(options.load, setting);
  Model read = read_model(model, load);
  read_ms = milliseconds_since(begin);
  RunnerOptions how{load, tuning, {}, {}};
  if (options.image_bytes) how.byte_images = prepare_for(read, {}).preprocess;
  const InputFiles files(options.inputs, read, options.image_bytes);
  runner = std::make_unique<Runner>(read.name, std::move(read.graph), how);
  ready_ms = milliseconds_since(begin);
  inputs = files.tensors(runner->plan->graph());
  for (const Tensor& tensor : inputs) views.push_back(tensor.view());
}

void TimedModel::tell_notes(const tools::TimingOptions& options) const {
  if (!options.note) return;
  for (const std::string& note : runner->notes) options.note(note);
}

std::int64_t TimedModel::samples() const {
  return inputs.empty() || inputs[0].shape().rank() == 0 ? 1
                                                         : std::max<std::int64_t>(inputs[0].shape()[0], 1);
}

}  // namespace pipit::internal::detail
