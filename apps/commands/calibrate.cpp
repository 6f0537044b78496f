// pipit calibrate MODEL IMAGES: the ranges and INT8 scales of a model's tensors.
#include "pipit/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/list_option.h"
#include "apps/options/options.h"
#include "apps/options/values.h"

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
  tools::RangeOptions range;
  bool method_given = false;
  std::optional<double> percentile;
  bool per_tensor_weights = false;
  bool equalize = false;
  bool bias_correction = false;
  bool no_histograms = false;
  std::string check;
  std::string truth;
  std::string labels;
  std::string trt_version;
  std::int64_t limit = 0;
  std::int64_t skip = 0;
  bool wide = false;
  bool strict = false;
};

const std::map<std::string, tools::RangeMethod> kMethods = {{"minmax", tools::RangeMethod::minmax},
                                                            {"percentile", tools::RangeMethod::percentile},
                                                            {"entropy", tools::RangeMethod::entropy},
                                                            {"mse", tools::RangeMethod::mse}};

std::string method_name(tools::RangeMethod method) {
  return std::ranges::find(kMethods, method, &std::pair<const std::string, tools::RangeMethod>::second)
      ->first;
}

void print_table(const CalibrateOptions& options, const tools::Calibration& result) {
  Table table({{"tensor", Table::Align::left, 0, true},
               {"min", Table::Align::right, 2},
               {"max", Table::Align::right, 2},
               {"threshold", Table::Align::right},
               {"scale", Table::Align::right, 1},
               {"clipped", Table::Align::right}});
  for (const tools::TensorRange& t : result.tensors) {
    table.add({t.name, fmt::format("{:.4g}", t.min), fmt::format("{:.4g}", t.max),
               fmt::format("{:.4g}", t.threshold), fmt::format("{:.4g}", t.scale),
               fmt::format("{:.4f} %", 100 * t.clipped)});
  }
  std::string kept;
  for (const tools::KeptLayer& k : result.kept) {
    kept += fmt::format("{} stays in {}{}\n", printable(k.name), precision_name(k.precision),
                        k.why.empty() ? "" : ": " + printable(k.why));
  }
  const int width = table_width(options.wide);
  fmt::print(
      "{}\n{}", table.str(0, width),
      wrapped(fmt::format("{}{}, {}, method {}; written to {}\n", kept,
                          counted(std::ssize(result.tensors), "tensor"), counted(result.images, "image"),
                          method_name(result.method), printable(options.output)),
              2, width));
  if (result.checked) fmt::print("{}", wrapped(tools::check_text(*result.checked) + "\n", 2, width));
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
  if (options.check.empty() && !(options.truth.empty() && options.labels.empty()))
    throw CLI::ValidationError(options.truth.empty() ? "--labels" : "--truth", "is for --check");
  const bool caches = std::ranges::find(options.exports, "trt-cache") != options.exports.end();
  if (!options.trt_version.empty() && !caches)
    throw CLI::ValidationError("--trt-version", "is for --export trt-cache");
  if (options.equalize && !options.exports.empty())
    throw CLI::ValidationError("--export", "other engines would run the model as it is, not equalized");
  if (options.percentile && options.range.method != tools::RangeMethod::percentile)
    throw CLI::ValidationError("--percentile", "is for --method percentile");
  check_exports(options, inputs);
}

// What is merged was calibrated already: only the method may be chosen anew.
void check_merge(const CLI::App& command) {
  constexpr std::array kMeant = {"merge",         "output", "json",   "quiet",      "wide",
                                 "no-histograms", "export", "method", "percentile", "trt-version"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::string& name = option->get_lnames().at(0);
    if (std::find(kMeant.begin(), kMeant.end(), name) == kMeant.end())
      throw CLI::ValidationError("--" + name, "means nothing to --merge, which adds up what was calibrated");
  }
}

tools::PlanFiles files_of(const CalibrateOptions& options) {
  tools::PlanFiles files;
  files.plan = options.output;
  files.histograms = !options.no_histograms;
  if (!options.trt_version.empty()) files.trt_version = options.trt_version;
  for (const std::string& format : options.exports)
    (format == "ncnn" ? files.ncnn_table : files.trt_cache) = export_path(options, format);
  return files;
}

// `told`: what was already printed.
tools::Calibration calibrate_images(const CalibrateOptions& options, const tools::RangeOptions& range,
                                    std::set<std::string>& told) {
  const bool quiet = options.common.quiet;
  tools::CalibrateOptions how;
  how.load = options.common.load_options();
  how.keep = options.common.keep;
  options.model.add_to(how.load);
  how.preprocess = options.image.preprocess_options();
  how.range = range;
  how.per_channel_weights = !options.per_tensor_weights;
  how.equalize = options.equalize;
  how.bias_correction = options.bias_correction;
  how.skip = options.skip;
  how.limit = options.limit;
  how.strict = options.strict;
  how.check.folder = options.check;
  how.check.truth = options.truth;
  how.check.labels = options.labels;
  std::optional<Progress> progress;
  std::int64_t last = 0;
  how.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress || done < last) progress.emplace(progress ? "check" : "calibrate", total, quiet);
    last = done;
    progress->update(done);
  };
  how.note = [&told, print = note_printer(quiet)](const std::string& note) {
    if (told.insert(note).second && print) print(note);
  };
  return tools::calibrate(options.model.model, std::array{std::filesystem::path(options.images)},
                          files_of(options), how);
}

int calibrate(const CalibrateOptions& options) {
  check_usage(options);
  tools::RangeOptions range = options.range;
  if (options.percentile) range.percentile = *options.percentile;
  const bool merges = !options.merge.empty();
  std::set<std::string> told;
  const std::vector<std::filesystem::path> plans(options.merge.begin(), options.merge.end());
  const tools::Calibration result =
      merges ? tools::merge_calibrations(plans, files_of(options),
                                         options.method_given ? std::optional(range) : std::nullopt)
             : calibrate_images(options, range, told);
  if (!options.common.quiet) {
    print_notes(result.notes);
    std::vector<std::string> more = result.checked ? result.checked->notes : std::vector<std::string>{};
    std::erase_if(more, [&](const std::string& note) { return !told.insert(note).second; });
    print_notes(more);
  }
  if (options.common.json) {
    fmt::print("{}", result.json);
  } else {
    print_table(options, result);
  }
  print_next(
      options.common.quiet,
      {"diff", result.model, merges ? "photos" : std::string_view(options.images), "--plan", options.output},
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
             "--method", [options](const std::string& name) { options->range.method = kMethods.at(name); },
             "How ranges are chosen: the largest magnitude, a percentile, least KL divergence, or least mean "
             "squared error [mse]"),
         {"minmax", "percentile", "entropy", "mse"});
  command
      ->add_option("--percentile", options->percentile,
                   "With --method percentile: percent of the magnitudes that are not clipped [99.99]")
      ->check(positive_number() & CLI::Range(0.0, 100.0));
  command->add_flag("--per-tensor-weights", options->per_tensor_weights,
                    "One scale for all weights of a node instead of one per output channel");
  command->add_flag("--equalize", options->equalize,
                    "Cross-layer equalization: balance the channels between neighbouring convolutions before "
                    "calibrating (Nagel et al. 2019); the plan holds the factors");
  command->add_flag("--bias-correction", options->bias_correction,
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
      ->add_option("--trt-version", options->trt_version,
                   "The release of TensorRT that reads the .trt-cache, up to 10 [10.3.0]")
      ->type_name("N.N.N");
  command
      ->add_option(
          "--check", options->check,
          "Then evaluate the plan in INT8 against fp32 on this folder of other images, as evaluate takes "
          "it: what INT8 costs, with its 95 % interval, and which tensors leave their range")
      ->type_name("FOLDER");
  command
      ->add_option("--truth", options->truth,
                   "For --check: a CSV file with the classes of its images, as in evaluate")
      ->type_name("FILE");
  command
      ->add_option("--labels", options->labels,
                   "For --check: file with one class name per line [those of the model]")
      ->type_name("FILE");
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
      "Start with about a hundred images of all kinds that the model will see. Notes warn of too few images, "
      "of\n"
      "images of one kind, of ranges that later images exceed, and of another preprocessing than the model "
      "stores.\n"
      "Examples:\n"
      "  pipit calibrate squeezenet.onnx photos --resize 256 --crop 227 --output plan.json\n"
      "  pipit calibrate model.onnx photos --method percentile --percentile 99.9 --limit 100 --output "
      "plan.json\n"
      "  pipit calibrate model.onnx photos --check val --output plan.json\n"
      "  pipit calibrate --merge shard1.json shard2.json --output plan.json");
  command->callback([options, command, &exit_code] {
    options->method_given = command->get_option("--method")->count() > 0;
    if (!options->merge.empty()) check_merge(*command);
    exit_code = calibrate(*options);
  });
}

}  // namespace pipit::internal::apps
