#include "pipit/tools.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <random>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/platform/float_mode.h"
#include "engine/runtime/profiler.h"
#include "models/onnx/write/writer.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/detail/step_info.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;

namespace {

namespace fs = std::filesystem;

PlanOptions on_the_cpu(int threads) {
  LoadOptions options;
  options.threads = threads;
  options.tuning = Tuning::by_order;
  return detail::compile_options(options).planning;
}

std::vector<QuantizationPlan::Kept> parse_all(const std::vector<std::string>& keep) {
  std::vector<QuantizationPlan::Kept> kept;
  for (const std::string& text : keep) kept.push_back(parse_keep(text));
  return kept;
}

ThresholdMethod method_of(RangeMethod method) {
  switch (method) {
    case RangeMethod::minmax:
      return ThresholdMethod::minmax;
    case RangeMethod::percentile:
      return ThresholdMethod::percentile;
    case RangeMethod::entropy:
      return ThresholdMethod::entropy;
    case RangeMethod::mse:
      break;
  }
  return ThresholdMethod::mse;
}

// Normal numbers, always the same: zeros could run faster than data does.
std::vector<std::vector<float>> random_values(const CompiledModel& model) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all;
  for (const TensorInfo& info : model.inputs()) {
    if (info.dtype != DType::f32)
      fail("{}: input '{}' is {}; made-up inputs are f32 only", model.name(), info.name,
           dtype_name(info.dtype));
    std::vector<float>& values = all.emplace_back(static_cast<std::size_t>(info.shape.elements()));
    for (float& x : values) x = normal(random);
  }
  return all;
}

}  // namespace

std::vector<std::string> calibrate(const std::string& model, std::span<const fs::path> images,
                                   const fs::path& plan, const CalibrateOptions& options) {
  const ScopedFloatMode mode;
  if (!(options.percentile > 0 && options.percentile <= 100))
    fail("percentile is {}; expected more than 0 and at most 100", options.percentile);
  std::vector<std::string> inputs = {model};
  for (const fs::path& path : images) inputs.push_back(path.string());
  check_output_file(plan, inputs);
  Model loaded = load_model(model, {});
  detail::need_floating_point(loaded, "calibrate");
  const detail::ImageList found = detail::list_given(images, options.strict);
  const Preprocess preprocess = detail::prepare_for(loaded, options.preprocess).preprocess;
  QuantizationPlan made = detail::empty_plan(loaded, preprocess);
  made.method.method = method_of(options.method);
  made.method.percentile = options.percentile;
  made.weights_per_channel = options.per_channel_weights;
  Graph fused = fuse(std::move(loaded.graph));
  made.keep = kept_by_default(fused);
  const std::vector<std::string> kept_notes = keep_nodes(made, fused, parse_all(options.keep));
  const detail::Corrections corrections{options.equalize, options.bias_correction};
  detail::Calibrated done = detail::calibrate_on(made, model, std::move(fused), preprocess, found.files.paths,
                                                 detail::ImageNames(images), on_the_cpu(options.threads),
                                                 corrections, options.progress, options.strict);
  for (const std::string& note : {unreadable_note(done.unreadable, std::ssize(found.files.paths)),
                                  left_out_note(found.files.left_out)}) {
    if (!note.empty()) done.notes.push_back(note);
  }
  if (found.repeated > 0)
    done.notes.push_back(
        fmt::format("{} given twice and {} once",
                    found.repeated == 1 ? "1 image is" : fmt::format("{} images are", found.repeated),
                    found.repeated == 1 ? "counts" : "count"));
  done.notes.insert(done.notes.begin(), kept_notes.begin(), kept_notes.end());
  write_quantization_plan(plan, made, true);
  return std::move(done.notes);
}

QuantizedFile quantize(const std::string& model, const fs::path& plan, const fs::path& output,
                       const QuantizeOptions& options) {
  const ScopedFloatMode mode;
  check_output_file(output, std::array{model, plan.string()});
  Model loaded = detail::read_model(model, options.load);
  const bool symbolic = !loaded.fixed_batch;
  const detail::QuantizedFile file =
      detail::quantized_file(std::move(loaded), plan, parse_all(options.keep),
                             options.signed_activations ? DType::i8 : DType::u8, symbolic);
  write_file(output, file.bytes);
  QuantizedFile result;
  result.int8_layers = file.quantized;
  result.float_layers = file.kept;
  result.bytes = static_cast<std::int64_t>(file.bytes.size());
  result.notes = file.notes;
  if (!file.differences.empty()) result.notes.push_back(detail::differences_note(plan, file.differences));
  return result;
}

ModelProfile profile(const CompiledModel& model, std::span<const ArrayView> inputs,
                     const ProfileOptions& options) {
  const ScopedFloatMode mode;
  if (options.device < 0 || options.device >= model.devices())
    fail("{}: device {} is asked for, it was compiled for {}", model.name(), options.device, model.devices());
  const std::shared_ptr<const ExecutionPlan>& plan =
      model.state().plans[static_cast<std::size_t>(options.device)];
  std::vector<std::vector<float>> made;
  std::vector<ConstTensorView> views;
  if (inputs.empty()) {
    made = random_values(model);
    for (std::size_t i = 0; i < made.size(); ++i)
      views.push_back(
          {TensorDesc{model.inputs()[i].shape}, reinterpret_cast<const std::byte*>(made[i].data())});
  }
  for (const ArrayView& given : inputs)
    views.push_back({TensorDesc{given.shape, given.dtype}, static_cast<const std::byte*>(given.data)});
  const Profile measured = naming(model.name(), [&] {
    Session session(plan);
    session.run(views);  // checks the inputs
    return profile_session(session, views, options.warmup, options.runs);
  });
  ModelProfile result;
  result.runs = measured.runs;
  result.layers_ms = measured.layers_ms;
  result.end_to_end_ms = measured.end_to_end_ms;
  result.residual_ms = measured.residual_ms;
  result.graph_ms = measured.graph_ms;
  for (const StepTime& time : measured.steps) {
    detail::StepInfo info = detail::step_info(*plan, plan->steps()[static_cast<std::size_t>(time.step)]);
    result.layers.push_back({std::move(info.name), std::move(info.type), std::move(info.kernel),
                             std::move(info.geometry), info.input, info.output, info.macs, info.bytes,
                             time.median_ms});
  }
  return result;
}

}  // namespace pipit::tools
