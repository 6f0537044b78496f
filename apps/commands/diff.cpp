// pipit diff MODEL IMAGES: what INT8 costs, layer by layer, against fp32 on the same images.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/error_shares.h"
#include "apps/measuring/runner.h"
#include "apps/options/values.h"
#include "engine/platform/device.h"
#include "models/image/folder.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/load.h"
#include "quant/kept_layers.h"
#include "quant/layer_difference.h"

namespace pipit::internal::apps {

namespace {

struct DiffOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  std::int64_t limit = 0;
  std::int64_t share_limit = 32;
  std::string sort = "worst";
  bool fast = false;
  bool wide = false;
  bool strict = false;
};

struct Comparison {
  std::vector<std::string> preprocess_differences;
  std::vector<LayerDifference> layers;
  TensorDifference output;
  std::int64_t images = 0;
  std::optional<ClassOutput> scores;  // what the output is, if it is of classes
  std::int64_t other_top1 = 0;        // images with another answer, or without classes another largest value
  std::int64_t share_images = 0;
  LayerShares shares;  // empty with --fast
  LeftOut left_out;
  std::vector<UnreadableImage> unreadable;
};

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

void compare_layers(const MixedModel& model, PreparedImages& images, const ProgressReport& progress,
                    Comparison& result) {
  const auto fp32 = model.in_fp32(true);
  const auto int8 = model.in_int8({}, true);
  Session reference(fp32);
  Session quantized(int8);
  LayerComparison comparison(*fp32, *int8);
  reference.set_observer(&comparison.reference());
  quantized.set_observer(&comparison.quantized());
  const std::int64_t batch = images.inputs().samples;
  images.for_each_batch([&](std::span<const ConstTensorView> inputs, std::int64_t first, std::int64_t count) {
    comparison.begin(images.inputs().rows(count));
    const Tensor real = to_layout(reference.run(inputs)[0], Layout::row_major);
    const Tensor coarse = to_layout(quantized.run(inputs)[0], Layout::row_major);
    const Shape shape = batch == 1 ? real.shape() : real.shape().with(0, count);
    const auto own = static_cast<std::size_t>(shape.elements());
    result.output.add(shape, real.values<float>().first(own), coarse.values<float>().first(own),
                      std::numeric_limits<float>::infinity());
    result.other_top1 += count_others(result.scores, real, coarse, batch, count);
    progress(first + count, images.size());
  });
  result.images = images.size();
  result.layers = comparison.layers();
}

const LayerShare* share_of(const LayerShares& shares, const std::string& node) {
  const auto found = std::find_if(shares.layers.begin(), shares.layers.end(),
                                  [&](const LayerShare& share) { return share.layer == node; });
  return found == shares.layers.end() ? nullptr : &*found;
}

// Shares of the noise with all layers in INT8.
std::optional<double> alone_share(const LayerShares& shares, const LayerShare& share) {
  if (!share.alone) return {};
  return shares.all > 0 ? *share.alone / shares.all : 0;
}
double removed_share(const LayerShares& shares, const LayerShare& share) {
  return shares.all > 0 ? 1 - share.without.value_or(shares.all) / shares.all : 0;
}

nlohmann::ordered_json difference_json(const TensorDifference& d) {
  // JSON has no infinity: null.
  return {{"cosine", d.cosine()}, {"sqnr_db", d.sqnr_db()}, {"max_error", d.max_error()}};
}

void print_as_json(const Model& model, const ExecutionPlan& plan, const DiffOptions& options,
                   const Comparison& result) {
  nlohmann::ordered_json json = json_header("diff", model, plan);
  json["precision"] = "int8";
  json["plan"] = options.common.plan;
  json["preprocess_differences"] = result.preprocess_differences;
  json["images"] = result.images;
  json.update(excluded_json(result.left_out, result.unreadable));
  json["output"] = difference_json(result.output);
  json["output"]["other_top1"] = result.other_top1;
  if (result.scores) add_scores_to(json, *result.scores);
  if (!options.fast) {
    json["share_images"] = result.share_images;
    json["output_noise"] = result.shares.all;
  }
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerDifference& layer : result.layers) {
    nlohmann::ordered_json entry = {{"name", layer.node},
                                    {"type", layer.type},
                                    {"tensor", layer.tensor},
                                    {"precision", precision_name(layer.precision)}};
    entry.update(difference_json(layer.difference));
    entry["clipped"] =
        layer.output8 ? nlohmann::ordered_json(layer.difference.clipped()) : nlohmann::ordered_json();
    const TensorDifference::Channel worst = layer.difference.worst_channel();
    entry["worst_channel"] = {
        {"index", worst.index}, {"noise_share", worst.noise_share}, {"sqnr_db", worst.sqnr_db}};
    if (const LayerShare* share = share_of(result.shares, layer.node)) {
      if (share->alone) {
        entry["noise_alone"] = *share->alone;
        entry["share_alone"] = *alone_share(result.shares, *share);
      }
      entry["noise_without"] = share->without.value_or(0);
      entry["share_removed"] = removed_share(result.shares, *share);
    }
    json["layers"].push_back(std::move(entry));
  }
  print_json(json);
}

std::string decibel(double db) {
  return std::isinf(db) ? (db > 0 ? "exact" : "-inf") : fmt::format("{:.1f}", db);
}

std::string with_unit(double db) {
  return decibel(db) + (std::isinf(db) && db > 0 ? "" : " dB");
}

// How bad a layer is: by the noise that goes where it stays in fp32; where that was not measured, by its own.
double badness(const Comparison& result, const LayerDifference& layer) {
  if (const LayerShare* share = share_of(result.shares, layer.node))
    return removed_share(result.shares, *share);
  return -std::numeric_limits<double>::infinity();
}

// As they run, or the worst first: those whose share was measured, then by their own SQNR.
std::vector<const LayerDifference*> rows_of(const DiffOptions& options, const Comparison& result) {
  std::vector<const LayerDifference*> rows;
  for (const LayerDifference& layer : result.layers) rows.push_back(&layer);
  if (options.sort == "order") return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](const LayerDifference* a, const LayerDifference* b) {
    const double bad_a = badness(result, *a), bad_b = badness(result, *b);
    return bad_a != bad_b ? bad_a > bad_b : a->difference.sqnr_db() < b->difference.sqnr_db();
  });
  return rows;
}

void print_as_table(const DiffOptions& options, const Comparison& result) {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {
      {"layer", Align::left, 0, true}, {"type", Align::left, 3},          {"in"},
      {"cosine", Align::right, 2},     {"SQNR dB", Align::right},         {"max error", Align::right, 4},
      {"clipped %", Align::right, 5},  {"worst channel", Align::right, 6}};
  if (!options.fast) {
    columns.push_back({"alone %", Align::right, 1});
    columns.push_back({"removed %", Align::right});
  }
  Table table(columns);
  for (const LayerDifference* shown : rows_of(options, result)) {
    const LayerDifference& layer = *shown;
    const TensorDifference& d = layer.difference;
    const TensorDifference::Channel worst = d.worst_channel();
    std::vector<std::string> row = {
        layer.node,
        layer.type,
        std::string(precision_name(layer.precision)),
        fmt::format("{:.5f}", d.cosine()),
        decibel(d.sqnr_db()),
        fmt::format("{:.3g}", d.max_error()),
        layer.output8 ? fmt::format("{:.3f}", 100 * d.clipped()) : "",
        d.noise() > 0 ? fmt::format("{} ({:.0f} %)", worst.index, 100 * worst.noise_share) : ""};
    if (const LayerShare* share = share_of(result.shares, layer.node)) {
      const std::optional<double> alone = alone_share(result.shares, *share);
      row.push_back(alone ? fmt::format("{:.1f}", 100 * *alone) : "");
      row.push_back(fmt::format("{:.1f}", 100 * removed_share(result.shares, *share)));
    }
    table.add(std::move(row));
  }
  const int width = table_width(options.wide);
  fmt::print("{}\noutput       SQNR {}, cosine {:.5f}, max error {:.3g}\n", table.str(0, width),
             with_unit(result.output.sqnr_db()), result.output.cosine(), result.output.max_error());
  const char* what = !result.scores ? "largest" : are_independent(result.scores->kind) ? "answer" : "top-1";
  fmt::print("{:<13}another one for {} of {}\n", what, result.other_top1, counted(result.images, "image"));
  if (options.fast) return;
  fmt::print("{}",
             wrapped(fmt::format("alone %      noise of the output with only this layer in INT8, of "
                                 "that with all ({})\n"
                                 "removed %    how much of it goes when only this layer stays in fp32\n",
                                 counted(result.share_images, "image")),
                     13, width));
}

int diff(const DiffOptions& options) {
  if (options.common.plan.empty()) throw CLI::RequiredError("--plan");
  require_device(options.common.device);
  Model model = options.model.load();
  detail::need_floating_point(model, "compare");
  QuantizationPlan plan = detail::read_plan_for(options.common.plan, model.graph);
  ImageFiles files = list_images(options.images);
  const Preprocess preprocess =
      noted_preprocess(model, options.image.resolve(model, files.paths), options.common.quiet);
  std::vector<std::string> of_scales = scale_notes(plan);
  Comparison result;
  if (!are_arrays(files.paths))
    result.preprocess_differences = options.common.compare_preprocess(plan, preprocess);
  result.scores = find_class_output(model.graph, model.scores);
  Graph fused = fuse(std::move(model.graph));
  for (std::string& note : keep_nodes(plan, fused, options.common.kept()))
    of_scales.push_back(std::move(note));
  // Kernels chosen by timing may differ from run to run in the last digits.
  CommonOptions common = options.common;
  common.tuning.switch_off();
  common.keep.clear();  // the plan has them
  const MixedModel mixed(std::move(fused), std::move(plan), common.compile_options());
  const auto fp32 = mixed.in_fp32();
  const SampleInputs inputs(fp32->graph());
  const std::shared_ptr<ThreadPool> pool = shared_pool(fp32->options().threads);

  result.left_out = files.left_out;
  if (options.strict) result.left_out.end_at_folders();
  const std::vector<std::filesystem::path> images = spread(std::move(files.paths), options.limit);
  PreparedImages prepared(images, preprocess, inputs, pool);
  PreparedImages some(spread(images, options.share_limit), preprocess, inputs, pool,
                      PreparedImages::kUsualCacheBytes);
  if (!options.strict) {
    prepared.skip_unreadable();
    some.skip_unreadable();
  }
  {
    std::vector<Progress::Stage> plan_of_work = {{"comparing", 2.0 * static_cast<double>(prepared.size())}};
    if (!options.fast)
      plan_of_work.push_back({"layer by layer", 2.0 * static_cast<double>(mixed.layers().size()) *
                                                    static_cast<double>(some.size())});
    Progress progress("diff", std::move(plan_of_work), common.quiet);
    compare_layers(mixed, prepared, progress.stage("comparing"), result);
    if (!options.fast) {
      result.shares = measure_shares(mixed, some, false, progress.stage("layer by layer"));
      result.share_images = some.size();
    }
  }
  result.unreadable = prepared.unreadable();
  std::vector<std::string> notes = std::move(of_scales);
  add_image_notes(notes, result.left_out, result.unreadable, std::ssize(images));
  if (!common.quiet) print_notes(notes);
  if (common.json) {
    print_as_json(model, *fp32, options, result);
  } else {
    print_as_table(options, result);
  }
  print_next(common.quiet,
             {"tune", options.model.model, options.images, "--plan", options.common.plan, "--max-drop", "1",
              "--output", "mixed.json", common.device == DeviceKind::cuda ? "--device" : "",
              common.device == DeviceKind::cuda ? "cuda" : ""},
             "which layers to keep in floating point for at most one point of accuracy");
  return kExitOk;
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand("diff", "Show what INT8 costs each layer, against fp32");
  options->model.add_to(*command, true);
  options->model.classifies = true;
  options->image.add_preprocessing_to(*command);
  CommonOptions& common = options->common;
  common.add_plan_to(*command);
  common.add_keep_to(*command);
  common.add_device_to(*command);
  common.add_fallback_to(*command);
  common.add_kernels_to(*command);
  common.add_threads_to(*command);
  common.add_output_to(*command);
  command
      ->add_option("IMAGES", options->images,
                   "A folder of images or arrays (or one file); classes do not matter")
      ->required()
      ->type_name("IMAGES");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command
      ->add_option("--share-limit", options->share_limit,
                   "Use at most N of the images for the columns 'alone' and 'removed', which run the model "
                   "twice for each layer; 0: all")
      ->check(count_value())
      ->capture_default_str();
  one_of(command->add_option("--sort", options->sort,
                             "Order of the rows: the worst first, by the noise that keeping a layer in fp32 "
                             "removes (with --fast, by SQNR), or as layers run"),
         {"worst", "order"})
      ->capture_default_str();
  command->add_flag("--fast", options->fast, "Omit the columns 'alone' and 'removed'");
  add_strict_to(*command, options->strict);
  add_wide_to(*command, options->wide);
  command->footer(
      "Each row compares a layer's output in INT8, with all layers before it in INT8 too, to its output in "
      "fp32:\n"
      "  cosine         of the angle between the two\n"
      "  SQNR           signal to quantization noise, 10 log10(sum of squares / sum of squared differences)\n"
      "  clipped %      fp32 values beyond the INT8 range\n"
      "  worst channel  the output channel with the largest share of the layer's noise, and that share\n"
      "  alone %        the noise of the model's output with only this layer in INT8, relative to all layers "
      "in INT8\n"
      "  removed %      the share of that noise that vanishes if this layer stays in fp32: --keep NAME=fp32\n"
      "The last two are for layers with weights ('removed' also for additions and average pools); they add "
      "up to 100 only\n"
      "if the errors of layers are independent. A negative share means that the layer's errors cancel those "
      "of others.\n"
      "With --device cuda both models run on the GPU, layer by layer; layers that stay in floating point may "
      "be in fp16\n"
      "there, as the column \"in\" shows.\n"
      "Examples:\n"
      "  pipit diff squeezenet.onnx photos --plan plan.json --resize 256 --crop 227 --limit 50\n"
      "  pipit diff resnet20-cifar10 cifar10-test --plan plan.json --fast --json\n"
      "  pipit diff resnet20-cifar10 cifar10-test --plan plan.json --batch 32 --device cuda");
  command->callback([options, &exit_code] { exit_code = diff(*options); });
}

}  // namespace pipit::internal::apps
