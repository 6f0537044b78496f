#include "pipit/calibrate.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"
#include "pipit/text.h"
#include "quant/export_scales.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::pair<RangeMethod, ThresholdMethod> kMethods[] = {
    {RangeMethod::minmax, ThresholdMethod::minmax},
    {RangeMethod::percentile, ThresholdMethod::percentile},
    {RangeMethod::entropy, ThresholdMethod::entropy},
    {RangeMethod::mse, ThresholdMethod::mse}};

ThresholdOptions threshold_options(const RangeOptions& range) {
  if (!(range.percentile > 0 && range.percentile <= 100))
    throw ArgumentError(
        fmt::format("percentile is {}; expected more than 0 and at most 100", range.percentile));
  const auto* found =
      std::ranges::find(kMethods, range.method, &std::pair<RangeMethod, ThresholdMethod>::first);
  return {found->second, range.percentile};
}

RangeMethod method_of(const QuantizationPlan& plan) {
  return std::ranges::find(kMethods, plan.method.method, &std::pair<RangeMethod, ThresholdMethod>::second)
      ->first;
}

// Before the work begins.
void check_outputs(const PlanFiles& output, const std::vector<std::string>& inputs) {
  if (output.plan.empty()) throw ArgumentError("no file is named for the plan");
  check_output_file(output.plan, inputs);
  for (const fs::path& path : {output.trt_cache, output.ncnn_table}) {
    if (path.empty()) continue;
    check_output_file(path, inputs);
    if (same_file(path, output.plan))
      throw ArgumentError(fmt::format("{} would replace the plan: name another file", path.string()));
  }
  if (!output.trt_cache.empty() && !output.ncnn_table.empty() &&
      same_file(output.trt_cache, output.ncnn_table))
    throw ArgumentError(fmt::format("{} would be written twice", output.trt_cache.string()));
}

// What a run says besides its plan.
Json remarks_json(const QuantizationPlan& plan, const std::vector<std::string>& notes) {
  Json json = {{"notes", notes}};
  const Clipping clipping = clipping_of(plan);
  json["clipping"] = {{"above", kMuchClipped}, {"tensors", clipping.tensors}};
  if (clipping.worst != nullptr) {
    json["clipping"]["worst"] = clipping.worst->name;
    json["clipping"]["clipped"] = clipping.worst->clipped;
  }
  json["moved"] = std::ranges::count_if(plan.tensors, &TensorScale::moved);
  return json;
}

Precision precision_of(const QuantizationPlan::Kept& kept) {
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    if (kept.precision == precision_name(precision)) return precision;
  }
  return Precision::fp32;
}

Calibration result_of(const QuantizationPlan& plan, std::vector<std::string> notes, const Json& excluded) {
  Calibration result;
  result.model = plan.model;
  result.method = method_of(plan);
  for (const TensorScale& t : plan.tensors)
    result.tensors.push_back({t.name, t.min, t.max, t.threshold, t.scale, t.clipped});
  for (const QuantizationPlan::Kept& kept : plan.keep)
    result.kept.push_back({kept.node, precision_of(kept), kept.why});
  result.images = std::ssize(plan.images);
  result.notes = std::move(notes);
  Json json = Json::parse(to_json(plan, false));
  json.update(remarks_json(plan, result.notes));
  json.update(excluded);
  result.json = json_text(json);
  return result;
}

void write_trt_cache(const PlanFiles& output, const QuantizationPlan& plan) {
  if (!output.trt_cache.empty()) write_file(output.trt_cache, to_trt_cache(plan));
}

// Images without those at the beginning that are left out, and of the others every n-th, so that all classes have a
// share.
void choose(std::vector<fs::path>& images, const CalibrateOptions& options) {
  if (options.skip < 0 || options.limit < 0)
    throw ArgumentError(fmt::format("skip {} and limit {}: expected 0 or more", options.skip, options.limit));
  const std::int64_t total = std::ssize(images);
  if (options.skip >= total)
    fail("skip is {}, but there {} only {}", options.skip, total == 1 ? "is" : "are",
         counted(total, "image"));
  images.erase(images.begin(), images.begin() + options.skip);
  images = spread(std::move(images), options.limit);
}

PlanOptions planning_of(const CalibrateOptions& options) {
  LoadOptions load;
  load.threads = options.load.threads;
  load.prefer_kernels = options.load.prefer_kernels;
  load.exclude_kernels = options.load.exclude_kernels;
  load.micro_batch = options.load.micro_batch;
  return compile_options(load).planning;
}

}  // namespace

Calibration calibrate(const std::string& name, std::span<const fs::path> given, const PlanFiles& output,
                      const CalibrateOptions& options) {
  const ScopedFloatMode mode;
  const ThresholdOptions method = threshold_options(options.range);
  std::vector<std::string> inputs = {name};
  for (const fs::path& path : given) inputs.push_back(path.string());
  check_outputs(output, inputs);
  if (options.equalize && !(output.trt_cache.empty() && output.ncnn_table.empty()))
    throw ArgumentError("other engines would run the model as it is, not equalized: export no scales of it");
  Model model = read_model(name, options.load);
  need_floating_point(model, "calibrate");
  ImageList list = list_given(given, options.strict);
  std::vector<fs::path>& images = list.files.paths;
  choose(images, options);
  const Preparation preparation = prepare_files(model, options.preprocess, images);
  const bool arrays = preparation.source == Preparation::Source::arrays;
  for (const std::string& note : notes_on(model, preparation, true, false, {}, 0))
    if (options.note) options.note(note);
  QuantizationPlan plan = empty_plan(model, preparation.preprocess);
  if (arrays) plan.preprocess.clear();
  plan.method = method;
  plan.weights_per_channel = options.per_channel_weights;
  Graph fused = fuse(std::move(model.graph));
  plan.keep = kept_by_default(fused);
  std::vector<std::string> notes = keep_nodes(plan, fused, kept_of(options.keep));
  const Graph laid_out = output.ncnn_table.empty() ? Graph{} : lower(fused);
  const std::int64_t total = std::ssize(images);
  const Calibrated done = calibrate_on(
      plan, name, std::move(fused), preparation.preprocess, images, ImageNames(given), planning_of(options),
      {options.equalize, options.bias_correction}, options.progress, options.strict);
  notes.insert(notes.end(), done.notes.begin(), done.notes.end());
  add_image_notes(notes, list.files.left_out, done.unreadable, total);
  if (list.repeated > 0) {
    notes.push_back(list.repeated == 1
                        ? "1 image is given twice and counts once"
                        : fmt::format("{} images are given twice and count once", list.repeated));
  }
  write_quantization_plan(output.plan, plan, output.histograms);
  write_trt_cache(output, plan);
  if (!output.ncnn_table.empty()) {
    write_file(output.ncnn_table,
               to_ncnn_table(plan, laid_out, weight_scales(laid_out, plan.weights_per_channel)));
  }
  Calibration result = result_of(plan, std::move(notes), excluded_json(list.files.left_out, done.unreadable));
  result.excluded = excluded_images(list.files.left_out, done.unreadable);
  return result;
}

Calibration merge_calibrations(std::span<const fs::path> paths, const PlanFiles& output,
                               const std::optional<RangeOptions>& range) {
  std::vector<std::string> inputs;
  for (const fs::path& path : paths) inputs.push_back(path.string());
  check_outputs(output, inputs);
  if (!output.ncnn_table.empty())
    throw ArgumentError("an ncnn table needs the model's weights, which plans do not hold");
  std::vector<QuantizationPlan> plans;
  for (const fs::path& path : paths) plans.push_back(read_quantization_plan(path));
  QuantizationPlan merged = merge_plans(plans);
  if (range) {  // the histograms serve every method
    merged.method = threshold_options(*range);
    set_scales(merged);
  }
  write_quantization_plan(output.plan, merged, output.histograms);
  write_trt_cache(output, merged);
  return result_of(merged, scale_notes(merged), Json::object());
}

}  // namespace pipit::tools
