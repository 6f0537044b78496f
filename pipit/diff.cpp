#include "pipit/diff.h"

#include <algorithm>
#include <limits>

#include "compile/mixed_model.h"
#include "engine/base/error.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "models/classification.h"
#include "models/prepared_images.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/stages.h"
#include "pipit/measuring/error_shares.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"
#include "quant/kept_layers.h"
#include "quant/layer_difference.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kComparing[] = "comparing", kLayers[] = "layer by layer";

// With another answer, or without classes another largest value.
std::int64_t count_others(const std::optional<ClassOutput>& output, const Tensor& a, const Tensor& b,
                          std::int64_t batch, std::int64_t images) {
  const auto values = static_cast<std::size_t>(a.desc().elements() / batch);
  std::int64_t other = 0;
  for (std::int64_t i = 0; i < images; ++i) {
    const auto said = [&](const Tensor& t) {
      const auto row = t.values<float>().subspan(static_cast<std::size_t>(i) * values, values);
      if (output) return answer(*output, row);
      return std::vector{static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin())};
    };
    other += said(a) != said(b) ? 1 : 0;
  }
  return other;
}

TensorError error_of(const TensorDifference& d) {
  return {d.cosine(), d.sqnr_db(), d.max_error()};
}

void compare_layers(const MixedModel& model, PreparedImages& images, const std::optional<ClassOutput>& scores,
                    const StageProgress& progress, Difference& result) {
  const auto fp32 = model.in_fp32(true);
  const auto int8 = model.in_int8({}, true);
  Session reference(fp32);
  Session quantized(int8);
  LayerComparison comparison(*fp32, *int8);
  reference.set_observer(&comparison.reference());
  quantized.set_observer(&comparison.quantized());
  const auto report = stage_report(progress, kComparing);
  const std::int64_t batch = images.inputs().samples;
  TensorDifference output;
  images.for_each_batch([&](std::span<const ConstTensorView> inputs, std::int64_t first, std::int64_t count) {
    comparison.begin(images.inputs().rows(count));
    const Tensor real = to_layout(reference.run(inputs)[0], Layout::row_major);
    const Tensor coarse = to_layout(quantized.run(inputs)[0], Layout::row_major);
    const Shape shape = batch == 1 ? real.shape() : real.shape().with(0, count);
    const auto own = static_cast<std::size_t>(shape.elements());
    output.add(shape, real.values<float>().first(own), coarse.values<float>().first(own),
               std::numeric_limits<float>::infinity());
    result.other_answers += count_others(scores, real, coarse, batch, count);
    report(first + count, images.size());
  });
  result.images = images.size();
  result.output = error_of(output);
  for (const LayerDifference& layer : comparison.layers()) {
    const TensorDifference& d = layer.difference;
    const TensorDifference::Channel worst = d.worst_channel();
    LayerError& error = result.layers.emplace_back();
    error.name = layer.node;
    error.type = layer.type;
    error.tensor = layer.tensor;
    error.precision = layer.precision;
    error.error = error_of(d);
    if (layer.output8) error.clipped = d.clipped();
    error.worst_channel = worst.index;
    error.worst_channel_share = d.noise() > 0 ? worst.noise_share : 0;
    error.worst_channel_sqnr_db = worst.sqnr_db;
  }
}

void add_shares(const LayerShares& shares, std::int64_t images, Difference& result) {
  result.share_images = images;
  result.output_noise = shares.all;
  const auto of_all = [&](double noise) { return shares.all > 0 ? noise / shares.all : 0; };
  for (LayerError& layer : result.layers) {
    const auto found = std::ranges::find(shares.layers, layer.name, &LayerShare::layer);
    if (found == shares.layers.end()) continue;
    if (found->alone) {
      layer.noise_alone = found->alone;
      layer.share_alone = of_all(*found->alone);
    }
    layer.noise_without = found->without.value_or(0);
    layer.share_removed = shares.all > 0 ? 1 - of_all(found->without.value_or(shares.all)) : 0;
  }
}

// JSON has no infinity: null.
Json error_json(const TensorError& error) {
  return {{"cosine", error.cosine}, {"sqnr_db", error.sqnr_db}, {"max_error", error.max_error}};
}

Json layer_json(const LayerError& layer) {
  Json entry = {{"name", layer.name},
                {"type", layer.type},
                {"tensor", layer.tensor},
                {"precision", precision_name(layer.precision)}};
  entry.update(error_json(layer.error));
  entry["clipped"] = layer.clipped ? Json(*layer.clipped) : Json();
  entry["worst_channel"] = {{"index", layer.worst_channel},
                            {"noise_share", layer.worst_channel_share},
                            {"sqnr_db", layer.worst_channel_sqnr_db}};
  if (layer.noise_alone) {
    entry["noise_alone"] = *layer.noise_alone;
    entry["share_alone"] = *layer.share_alone;
  }
  if (layer.noise_without) {
    entry["noise_without"] = *layer.noise_without;
    entry["share_removed"] = *layer.share_removed;
  }
  return entry;
}

Difference difference(const std::string& name, std::span<const fs::path> given, const fs::path& plan,
                      const DiffOptions& options) {
  const ScopedFloatMode mode;
  check_device(options.load.device);
  require_device(options.load.device.kind);
  Model model = read_model(name, options.load, {.run_batch = {}, .classifies = true});
  need_floating_point(model, "compare");
  QuantizationPlan scales = read_plan_for(plan, model.graph);
  ImageList list = list_given(given, options.strict);
  const Preparation preparation = prepare_files(model, options.preprocess, list.files.paths);
  const bool arrays = preparation.source == Preparation::Source::arrays;
  const auto tell = [&](const std::string& note) {
    if (options.note) options.note(note);
  };
  for (const std::string& note : notes_on(model, preparation, true, false, {}, 0)) tell(note);
  std::vector<std::string> differences;
  if (!arrays) differences = differences_from(scales, preparation.preprocess);
  if (!differences.empty()) tell(differences_note(plan, differences));

  Difference result;
  result.notes = scale_notes(scales);
  const std::optional<ClassOutput> output = find_class_output(model.graph, model.scores);
  if (output) result.scores = output->kind;
  Graph fused = fuse(std::move(model.graph));
  for (std::string& note : keep_nodes(scales, fused, kept_of(options.keep)))
    result.notes.push_back(std::move(note));
  // Kernels chosen by timing may differ from run to run in the last digits.
  LoadOptions load = options.load;
  load.precision = Precision::fp32;
  load.kernels.tuning = Tuning::by_order;
  load.kernels.cache.clear();
  const MixedModel mixed(std::move(fused), std::move(scales), compile_options(load));
  const auto fp32 = mixed.in_fp32();
  const SampleInputs inputs(fp32->graph());
  const std::shared_ptr<ThreadPool> pool = shared_pool(fp32->options().threads);

  const std::vector<fs::path> images = spread(std::move(list.files.paths), options.limit);
  PreparedImages prepared(images, preparation.preprocess, inputs, pool);
  PreparedImages some(spread(images, options.share_limit), preparation.preprocess, inputs, pool,
                      PreparedImages::kUsualCacheBytes);
  if (!options.strict) {
    prepared.skip_unreadable();
    some.skip_unreadable();
  }
  if (options.progress.planned) {
    std::vector<Stage> stages = {{kComparing, 2.0 * static_cast<double>(prepared.size())}};
    const double runs = 2.0 * static_cast<double>(mixed.layers().size());
    if (options.shares) stages.push_back({kLayers, runs * static_cast<double>(some.size())});
    options.progress.planned(stages);
  }
  compare_layers(mixed, prepared, output, options.progress, result);
  if (options.shares) {
    const LayerShares shares = measure_shares(mixed, some, false, stage_report(options.progress, kLayers));
    add_shares(shares, some.size(), result);
  }
  add_image_notes(result.notes, list.files.left_out, prepared.unreadable(), std::ssize(images));
  result.excluded = excluded_images(list.files.left_out, prepared.unreadable());

  Json json = json_header("diff", model.name, *fp32);
  json["precision"] = "int8";
  json["plan"] = plan.string();
  json["preprocess_differences"] = differences;
  json["images"] = result.images;
  json.update(excluded_json(list.files.left_out, prepared.unreadable()));
  json["output"] = error_json(result.output);
  json["output"]["other_top1"] = result.other_answers;
  if (output) add_scores_to(json, *output);
  if (options.shares) {
    json["share_images"] = result.share_images;
    json["output_noise"] = result.output_noise;
  }
  json["layers"] = Json::array();
  for (const LayerError& layer : result.layers) json["layers"].push_back(layer_json(layer));
  result.json = json_text(json);
  return result;
}

}  // namespace

Difference diff(const std::string& name, std::span<const fs::path> given, const fs::path& plan,
                const DiffOptions& options) {
  return passing_stops([&] { return difference(name, given, plan, options); });
}

}  // namespace pipit::tools
