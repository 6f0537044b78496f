#include "pipit/tools.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <random>
#include <set>

#include "compile/mixed_model.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/platform/float_mode.h"
#include "engine/runtime/profiler.h"
#include "models/image/folder.h"
#include "models/onnx/write/writer.h"
#include "models/prepared_images.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/detail/step_info.h"
#include "quant/kept_layers.h"
#include "quant/layer_difference.h"

namespace pipit::tools {

using namespace internal;

namespace {

namespace fs = std::filesystem;

struct Images {
  ImageFiles files;
  std::int64_t repeated = 0;  // given twice, and in `files` once
};

Images find_images(std::span<const fs::path> given, bool strict) {
  Images images;
  const detail::ImageNames names(given);
  std::set<std::string> seen;
  for (const fs::path& path : given) {
    ImageFiles found;
    if (given.size() > 1 && is_folder(path)) {
      add_images(found, path);
    } else {
      found = list_images(path);
    }
    for (fs::path& image : found.paths) {
      if (seen.insert(names.of(image)).second) {
        images.files.paths.push_back(std::move(image));
      } else {
        ++images.repeated;
      }
    }
    images.files.left_out.add(found.left_out);
  }
  if (strict || images.files.paths.empty()) images.files.left_out.end_at_folders();
  if (images.files.paths.empty()) fail("no images are given");
  return images;
}

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
  const Images found = find_images(images, options.strict);
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
  Model loaded = load_model(model, detail::onnx_options(options.load));
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

std::vector<LayerError> compare_int8(const std::string& model, std::span<const fs::path> images,
                                     const fs::path& plan, const CompareOptions& options) {
  const ScopedFloatMode mode;
  Model loaded = load_model(model, {});
  detail::need_floating_point(loaded, "compare");
  const Preprocess preprocess = detail::prepare_for(loaded, options.preprocess).preprocess;
  const Images found = find_images(images, true);
  QuantizationPlan scales = detail::read_plan_for(plan, loaded.graph);
  Graph fused = fuse(std::move(loaded.graph));
  keep_nodes(scales, fused, parse_all(options.keep));
  CompileOptions how;
  how.planning = on_the_cpu(options.threads);
  const MixedModel mixed(std::move(fused), std::move(scales), std::move(how));
  const auto fp32 = mixed.in_fp32(true);
  const auto int8 = mixed.in_int8({}, true);
  Session reference(fp32);
  Session quantized(int8);
  LayerComparison comparison(*fp32, *int8);
  reference.set_observer(&comparison.reference());
  quantized.set_observer(&comparison.quantized());
  const Graph& graph = fp32->graph();
  PreparedImages prepared(found.files.paths, preprocess, SampleInputs(graph),
                          shared_pool(fp32->options().threads));
  prepared.for_each_batch(
      [&](std::span<const ConstTensorView> inputs, std::int64_t first, std::int64_t count) {
        comparison.begin(prepared.inputs().rows(count));
        reference.run(inputs);
        quantized.run(inputs);
        if (options.progress) options.progress(first + count, prepared.size());
      });
  std::vector<LayerError> errors;
  for (const LayerDifference& layer : comparison.layers()) {
    const TensorDifference& d = layer.difference;
    errors.push_back({layer.node, layer.type, layer.precision == Precision::int8, d.cosine(), d.sqnr_db(),
                      d.max_error(), layer.output8 ? d.clipped() : 0});
  }
  return errors;
}

}  // namespace pipit::tools
