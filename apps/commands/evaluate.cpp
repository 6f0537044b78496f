// pipit evaluate MODEL FOLDER: accuracy on a folder of labelled images.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "apps/commands/accuracy_report.h"
#include "apps/commands/commands.h"
#include "apps/display/drop_text.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/evaluate.h"
#include "pipit/fetch.h"

namespace pipit::internal::apps {

namespace {

using tools::Evaluation;

struct EvaluateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string folder;
  std::string truth;
  std::int64_t limit = 0;
  std::vector<int> devices;
  std::string against;
  double max_drop = -1;  // points; negative: not given
  bool strict = false;
};

// "0,2" as {0, 2}.
std::vector<int> parse_devices(const std::string& text) {
  constexpr std::size_t kMaxDevices = 64;
  std::vector<int> devices;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int ordinal = -1;
    const auto [stop, error] = std::from_chars(at, end, ordinal);
    if (error != std::errc{} || ordinal < 0 || (stop != end && *stop != ',') ||
        devices.size() == kMaxDevices) {
      throw CLI::ValidationError(
          "--devices",
          fmt::format("'{}' is not a list of at most {} GPU numbers such as 0,1", text, kMaxDevices));
    }
    devices.push_back(ordinal);
    if (stop == end) return devices;
    at = stop + 1;
  }
}

bool is_against_precision(const std::string& against) {
  return against == "fp32" || against == "fp16" || against == "bf16";
}

void check_against(const std::string& against) {
  std::error_code ignored;
  if (against.empty() || is_against_precision(against) || tools::find_named_model(against) != nullptr ||
      std::filesystem::exists(against, ignored))
    return;
  throw CLI::ValidationError(
      "--against",
      fmt::format("takes fp32, fp16, bf16, an ONNX file or the name of a model ({}); '{}' is none of these",
                  tools::named_model_list(), against));
}

void print_next_of(const EvaluateOptions& options, const Evaluation& result) {
  const bool quantized = result.quantized;
  const std::optional<Evaluation::Comparison>& compared = result.against;
  const bool quiet = options.common.quiet;
  const std::string& model = options.model.model;
  const std::string& plan = options.common.plan;
  const std::string precision(precision_name(options.common.precision));
  if (options.common.precision == Precision::fp32 && !quantized) {
    print_next(quiet, {"calibrate", model, options.folder, "--limit", "100", "--output", "plan.json"},
               "scales for INT8, the first step to a faster model");
  } else if (!quantized && !compared) {
    print_next(quiet,
               {"evaluate", model, options.folder, "--precision", precision, plan.empty() ? "" : "--plan",
                plan, "--against", "fp32"},
               "what that precision loses, image by image");
  } else if (compared && compared->judged && !compared->judged->within && !plan.empty()) {
    print_next(quiet,
               {"tune", model, options.folder, "--plan", plan, "--max-drop",
                fmt::format("{:g}", options.max_drop), "--output", "mixed.json"},
               "which layers to keep in floating point");
  } else {
    print_next(quiet,
               {"bench", model, "--precision", quantized ? precision : "fp32," + precision,
                plan.empty() ? "" : "--plan", plan},
               "what it gains in time");
  }
}

tools::EvaluateOptions library_options(const EvaluateOptions& options) {
  tools::EvaluateOptions how;
  LoadOptions& load = how.classifier.load;
  load = options.common.load_options();
  options.model.add_to(load);
  load.device.gpus = options.devices;
  how.classifier.preprocess = options.image.preprocess_options();
  how.classifier.labels = options.image.labels;
  how.classifier.scores = options.image.score_kind();
  how.classifier.threshold = options.image.threshold;
  how.truth = options.truth;
  how.limit = options.limit;
  how.strict = options.strict;
  if (!options.against.empty()) {
    tools::Baseline& base = how.against.emplace();
    if (is_against_precision(options.against)) {
      base.precision = precisions().at(options.against);
    } else {
      base.model = options.against;
    }
  }
  if (options.max_drop >= 0) how.max_drop = options.max_drop;
  return how;
}

std::string text_of(const EvaluateOptions& options, const Evaluation& result) {
  constexpr int kLabel = 10;  // columns before the text
  const bool arrays = result.preprocessing == "arrays as they are";
  std::string text = fmt::format("{:<{}}{}\n", arrays ? "input" : "pixels", kLabel, result.preprocessing);
  const auto unreadable = std::ranges::count(result.excluded, false, &tools::ExcludedImage::is_folder);
  text += fmt::format("images    {}{}\n", result.right.of,
                      unreadable == 0 ? "" : fmt::format(", without {} that cannot be used", unreadable));
  text += accuracy_text(result, kLabel);
  text += fmt::format("speed     {:.1f} images/s with decoding, {:.1f} images/s in the model alone\n",
                      result.images_per_s, result.model_images_per_s);
  for (const tools::DeviceSpeed& device : result.devices) {
    text += fmt::format("GPU {:<5} {} images, {:.1f} images/s in the model alone\n", device.gpu,
                        device.images, device.model_images_per_s);
  }
  if (result.against) {
    const Evaluation::Comparison& compared = *result.against;
    text += fmt::format("against   {}: {} {:.2f} %, drop {} points; {} answered otherwise\n",
                        printable(options.against), result.measure, 100 * compared.drop.base,
                        drop_text(compared.drop), counted(compared.other_answers, "image"));
    if (compared.judged) text += promise_line(*compared.judged, kLabel);
  }
  return wrapped(text, kLabel, terminal_width());
}

int evaluate(const EvaluateOptions& options) {
  if (!options.devices.empty() && options.common.device != DeviceKind::cuda)
    throw CLI::ValidationError("--devices", "numbers GPUs: it needs --device cuda");
  if (options.max_drop >= 0 && options.against.empty())
    throw CLI::ValidationError("--max-drop", "needs a comparison: --against");
  check_against(options.against);
  options.common.check_precision();
  tools::EvaluateOptions how = library_options(options);
  const bool quiet = options.common.quiet;
  std::optional<Progress> progress;
  how.progress = [&](std::int64_t done, std::int64_t total, const std::string& found) {
    if (!progress) progress.emplace("evaluate", total, quiet);
    progress->update(done, found);
  };
  how.note = note_printer(quiet);
  const Evaluation result = tools::evaluate(options.model.model, options.folder, how);
  progress.reset();
  if (!quiet) print_notes(result.notes);
  fmt::print("{}", options.common.json ? result.json : text_of(options, result));
  print_next_of(options, result);
  const bool failed = result.against && result.against->judged && !result.against->judged->within;
  return failed ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure how often a model is right on a folder of images");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  options->image.add_to(*command);
  options->image.add_threshold_to(*command);
  command
      ->add_option("FOLDER", options->folder,
                   "Images or arrays in one sub-folder per class, all named by label or all by class index; "
                   "or files whose names begin with the class index and '_'")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--truth", options->truth,
                   "CSV file with the classes of the images, used instead of the names of folders and files: "
                   "one line per image with its path below FOLDER, a comma, and its classes (names or "
                   "indices), separated by ';'")
      ->type_name("FILE");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--devices", [options](const std::string& text) { options->devices = parse_devices(text); },
          "With --device cuda: divide the images among these GPUs, for example 0,1; one session for each "
          "number")
      ->type_name("N,...");
  command
      ->add_option("--against", options->against,
                   "Also run the same images in fp32, fp16 or bf16, or through another model (a file or a "
                   "name) in fp32, and show the loss of accuracy: paired, with its 95 % interval")
      ->type_name("fp32|fp16|bf16|MODEL");
  command
      ->add_option("--max-drop", options->max_drop,
                   "The most points of accuracy (percent of the images) that may be lost relative to "
                   "--against; exit code 4 if more are lost")
      ->check(nonnegative_number());
  add_strict_to(*command, options->strict);
  command->footer(
      "images_per_s is images divided by wall-clock time, decoding included. model_images_per_s counts only\n"
      "the time in the model's kernels, without waiting and without copies to and from a GPU; GPUs add up.\n"
      "Examples:\n"
      "  pipit evaluate resnet20-cifar10 cifar10-test --batch 32\n"
      "  pipit evaluate squeezenet.onnx photos --labels imagenet-classes.txt --resize 256 --crop 227 --json\n"
      "  pipit evaluate model.onnx val --precision int8 --plan plan.json --against fp32 --max-drop 1\n"
      "  pipit evaluate resnet50.onnx val --device cuda --devices 0,1 --precision fp16 --batch 32");
  command->callback([options, &exit_code] { exit_code = evaluate(*options); });
}

}  // namespace pipit::internal::apps
