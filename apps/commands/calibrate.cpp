// pipit calibrate MODEL IMAGES: the ranges and INT8 scales of a model's tensors.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/list_option.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "models/image/folder.h"
#include "pipit/detail/calibration.h"
#include "pipit/measuring/runner.h"
#include "quant/export_scales.h"
#include "quant/kept_layers.h"

namespace pipit::internal::apps {

namespace {

struct CalibrateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  std::string output;
  std::vector<std::string> merge;
  std::vector<std::string> exports;
  ThresholdOptions method;
  bool method_given = false;
  std::optional<double> percentile;
  bool per_tensor_weights = false;
  detail::Corrections corrections;
  bool no_histograms = false;
  std::int64_t limit = 0;
  std::int64_t skip = 0;
  bool wide = false;
  bool strict = false;
};

const std::map<std::string, ThresholdMethod> kMethods = {{"minmax", ThresholdMethod::minmax},
                                                         {"percentile", ThresholdMethod::percentile},
                                                         {"entropy", ThresholdMethod::entropy},
                                                         {"mse", ThresholdMethod::mse}};

// Every n-th image, so that all classes have a share, or without --limit all from --skip on.
ImageFiles choose_images(const CalibrateOptions& options) {
  ImageFiles found = list_images(options.images);
  if (options.strict) found.left_out.end_at_folders();
  std::vector<std::filesystem::path>& images = found.paths;
  const auto total = static_cast<std::int64_t>(images.size());
  if (options.skip >= total)
    fail("--skip {}: {} holds {}", options.skip, options.images, counted(total, "image"));
  images.erase(images.begin(), images.begin() + options.skip);
  images = spread(std::move(images), options.limit);
  return found;
}

// What a run says besides its plan: `excluded` as excluded_json() has it.
nlohmann::ordered_json remarks_json(const QuantizationPlan& plan, const std::vector<std::string>& notes,
                                    const nlohmann::ordered_json& excluded) {
  nlohmann::ordered_json json = {{"notes", notes}};
  const Clipping clipping = clipping_of(plan);
  json["clipping"] = {{"above", kMuchClipped}, {"tensors", clipping.tensors}};
  if (clipping.worst != nullptr) {
    json["clipping"]["worst"] = clipping.worst->name;
    json["clipping"]["clipped"] = clipping.worst->clipped;
  }
  json["moved"] = std::ranges::count_if(plan.tensors, &TensorScale::moved);
  json.update(excluded);
  return json;
}

void print_plan(const CalibrateOptions& options, const QuantizationPlan& plan,
                const std::vector<std::string>& notes, const nlohmann::ordered_json& excluded) {
  if (options.common.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(to_json(plan, false));
    json.update(remarks_json(plan, notes, excluded));
    print_json(json);
    return;
  }
  Table table({{"tensor", Table::Align::left, 0, true},
               {"min", Table::Align::right, 2},
               {"max", Table::Align::right, 2},
               {"threshold", Table::Align::right},
               {"scale", Table::Align::right, 1},
               {"clipped", Table::Align::right}});
  for (const TensorScale& t : plan.tensors) {
    table.add({t.name, fmt::format("{:.4g}", t.min), fmt::format("{:.4g}", t.max),
               fmt::format("{:.4g}", t.threshold), fmt::format("{:.4g}", t.scale),
               fmt::format("{:.4f} %", 100 * t.clipped)});
  }
  std::string kept;
  for (const QuantizationPlan::Kept& k : plan.keep) {
    kept += fmt::format("{} stays in {}{}\n", printable(k.node), k.precision,
                        k.why.empty() ? "" : ": " + printable(k.why));
  }
  const int width = table_width(options.wide);
  fmt::print("{}\n{}", table.str(0, width),
             wrapped(fmt::format("{}{}, {}, method {}; written to {}\n", kept,
                                 counted(static_cast<std::int64_t>(plan.tensors.size()), "tensor"),
                                 counted(static_cast<std::int64_t>(plan.images.size()), "image"),
                                 threshold_method_name(plan.method.method), printable(options.output)),
                     2, width));
}

// The file of an --export.
std::string export_path(const CalibrateOptions& options, const std::string& format) {
  const char* extension = format == "ncnn" ? ".ncnn-table" : ".trt-cache";
  return std::filesystem::path(options.output).replace_extension(extension).string();
}

void check_exports(const CalibrateOptions& options, const std::vector<std::string>& inputs) {
  for (const std::string& format : options.exports) {
    if (export_path(options, format) == options.output)
      throw CLI::ValidationError("--export", "would replace the plan; give --output another extension");
    check_output("--export", export_path(options, format), inputs);
    if (format == "ncnn" && !options.merge.empty())
      throw CLI::ValidationError(
          "--export",
          "an ncnn table needs the model's weights, which plans do not hold: only a run that "
          "calibrates writes one");
  }
}

void check_usage(const CalibrateOptions& options) {
  if (options.merge.empty()) {
    if (options.model.model.empty()) throw CLI::RequiredError("MODEL");
    if (options.images.empty()) throw CLI::RequiredError("IMAGES");
  } else if (!options.model.model.empty()) {
    throw CLI::ValidationError("--merge", "takes plans only, no MODEL and IMAGES");
  } else if (!options.common.keep.empty()) {
    throw CLI::ValidationError("--keep", "needs the model; a merged plan keeps what its shards keep");
  }
  if (options.output.empty()) throw CLI::RequiredError("--output");
  std::vector<std::string> inputs = options.merge;
  inputs.insert(inputs.end(), {options.model.model, options.images});
  check_output("--output", options.output, inputs);
  if (options.corrections.equalize && !options.exports.empty())
    throw CLI::ValidationError("--export", "other engines would run the model as it is, not equalized");
  if (options.percentile && options.method.method != ThresholdMethod::percentile)
    throw CLI::ValidationError("--percentile", "is for --method percentile");
  check_exports(options, inputs);
}

// What is merged was calibrated already: only the method may be chosen anew.
void check_merge(const CLI::App& command) {
  constexpr std::array kMeant = {"merge",         "output", "json",   "quiet",     "wide",
                                 "no-histograms", "export", "method", "percentile"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::string& name = option->get_lnames().at(0);
    if (std::find(kMeant.begin(), kMeant.end(), name) == kMeant.end())
      throw CLI::ValidationError("--" + name, "means nothing to --merge, which adds up what was calibrated");
  }
}

int calibrate(const CalibrateOptions& options) {
  check_usage(options);
  if (!options.merge.empty()) {
    std::vector<QuantizationPlan> plans;
    for (const std::string& path : options.merge) plans.push_back(read_quantization_plan(path));
    QuantizationPlan merged = merge_plans(plans);
    if (options.method_given) {  // the histograms serve every method
      merged.method = options.method;
      if (options.percentile) merged.method.percentile = *options.percentile;
      set_scales(merged);
    }
    write_quantization_plan(options.output, merged, !options.no_histograms);
    for (const std::string& format : options.exports) {
      if (format == "trt-cache") write_file(export_path(options, format), to_trt_cache(merged));
    }
    const std::vector<std::string> notes = scale_notes(merged);
    if (!options.common.quiet) print_notes(notes);
    print_plan(options, merged, notes, nlohmann::ordered_json::object());
    print_next(options.common.quiet, {"diff", merged.model, "photos", "--plan", options.output},
               "what INT8 costs each layer");
    return kExitOk;
  }
  Model model = options.model.load();
  detail::need_floating_point(model, "calibrate");
  const ImageFiles files = choose_images(options);
  const std::vector<std::filesystem::path>& images = files.paths;
  const Preprocess preprocess =
      noted_preprocess(model, options.image.resolve(model, images), options.common.quiet);
  QuantizationPlan plan = detail::empty_plan(model, preprocess);
  if (are_arrays(images)) plan.preprocess.clear();
  plan.method = options.method;
  if (options.percentile) plan.method.percentile = *options.percentile;
  plan.weights_per_channel = !options.per_tensor_weights;
  Graph fused = fuse(std::move(model.graph));
  plan.keep = kept_by_default(fused);
  const std::vector<std::string> kept_notes = keep_nodes(plan, fused, options.common.kept());
  const bool ncnn =
      std::find(options.exports.begin(), options.exports.end(), "ncnn") != options.exports.end();
  const Graph laid_out = ncnn ? lower(fused) : Graph{};
  detail::Calibrated done;
  {
    Progress progress("calibrate", static_cast<std::int64_t>(images.size()), options.common.quiet);
    done = detail::calibrate_on(
        plan, model.name, std::move(fused), preprocess, images,
        detail::ImageNames(std::array{std::filesystem::path(options.images)}),
        options.common.compile_options().planning, options.corrections,
        [&](std::int64_t count, std::int64_t) { progress.update(count); }, options.strict);
  }
  done.notes.insert(done.notes.begin(), kept_notes.begin(), kept_notes.end());
  add_image_notes(done.notes, files.left_out, done.unreadable, std::ssize(images));
  if (!options.common.quiet) print_notes(done.notes);
  write_quantization_plan(options.output, plan, !options.no_histograms);
  for (const std::string& format : options.exports) {
    if (format == "trt-cache") write_file(export_path(options, format), to_trt_cache(plan));
    if (format == "ncnn")
      write_file(export_path(options, format),
                 to_ncnn_table(plan, laid_out, weight_scales(laid_out, plan.weights_per_channel)));
  }
  print_plan(options, plan, done.notes, excluded_json(files.left_out, done.unreadable));
  print_next(options.common.quiet, {"diff", options.model.model, options.images, "--plan", options.output},
             "what INT8 costs each layer");
  return kExitOk;
}

}  // namespace

void add_calibrate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Find the INT8 scales of a model's tensors from a folder of images");
  options->model.add_to(*command, false);  // sums of another batch size may differ in their last bit
  command->get_option("MODEL")->required(false);
  options->image.add_preprocessing_to(*command);
  CommonOptions& common = options->common;
  common.add_keep_to(*command);
  common.add_kernels_to(*command);
  common.add_threads_to(*command);
  common.add_output_to(*command);
  command
      ->add_option("IMAGES", options->images,
                   "A folder of images or arrays (or one file); classes do not matter")
      ->type_name("IMAGES");
  command
      ->add_option("--output", options->output,
                   "The plan to write, JSON; an existing file is replaced (required)")
      ->type_name("FILE");
  one_of(command->add_option_function<std::string>(
             "--method", [options](const std::string& name) { options->method.method = kMethods.at(name); },
             "How ranges are chosen: the largest magnitude, a percentile, least KL divergence, or least mean "
             "squared error [mse]"),
         {"minmax", "percentile", "entropy", "mse"});
  command
      ->add_option("--percentile", options->percentile,
                   "With --method percentile: percent of the magnitudes that are not clipped [99.99]")
      ->check(positive_number() & CLI::Range(0.0, 100.0));
  command->add_flag("--per-tensor-weights", options->per_tensor_weights,
                    "One scale for all weights of a node instead of one per output channel");
  command->add_flag("--equalize", options->corrections.equalize,
                    "Cross-layer equalization: balance the channels between neighbouring convolutions before "
                    "calibrating (Nagel et al. 2019); the plan holds the factors");
  command->add_flag("--bias-correction", options->corrections.bias_correction,
                    "Correct biases for the change of each output's mean that rounding the weights causes "
                    "(Nagel et al. 2019); the plan holds the differences");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--skip", options->skip, "Skip the first N images of the folder")
      ->check(count_value())
      ->capture_default_str();
  add_strict_to(*command, options->strict);
  add_choices(*command, "--export", options->exports, {"trt-cache", "ncnn"},
              "Also write the scales for TensorRT (.trt-cache) or ncnn (.ncnn-table), next to the plan");
  command
      ->add_option(
          "--merge", options->merge,
          "Instead of calibrating: merge plans of one model that were made from different images (shards)")
      ->check(CLI::ExistingFile.description(""))
      ->type_name("FILE");
  command->add_flag("--no-histograms", options->no_histograms,
                    "Leave the histograms out of the plan: the file is smaller, but cannot be merged");
  add_wide_to(*command, options->wide);
  command->footer(
      "Start with about a hundred images of all kinds that the model will see; with fewer than 32 a note "
      "warns.\n"
      "Examples:\n"
      "  pipit calibrate squeezenet.onnx photos --resize 256 --crop 227 --output plan.json\n"
      "  pipit calibrate model.onnx photos --method percentile --percentile 99.9 --limit 100 --output "
      "plan.json\n"
      "  pipit calibrate --merge shard1.json shard2.json --output plan.json");
  command->callback([options, command, &exit_code] {
    options->method_given = command->get_option("--method")->count() > 0;
    if (!options->merge.empty()) check_merge(*command);
    exit_code = calibrate(*options);
  });
}

}  // namespace pipit::internal::apps
