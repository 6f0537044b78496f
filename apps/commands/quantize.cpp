// pipit quantize MODEL --plan PLAN --output FILE: the model with its plan's scales as a QDQ ONNX file, or with weights
// in 8 or 4 bits.
#include "pipit/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/stage_progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

struct QuantizeCommand {
  CommonOptions common{.precision = Precision::int8};
  ModelOptions model;
  ImageOptions image;
  std::string output;
  std::string activations;
  int weight_bits = 8;
  tools::QuantizeTarget target = tools::QuantizeTarget::pipit;
  std::string images;
  std::string rounding;
  std::int64_t limit = 0;
  bool strict = false;
};

constexpr std::array kTargets = {tools::QuantizeTarget::pipit, tools::QuantizeTarget::tensorrt,
                                 tools::QuantizeTarget::onnxruntime, tools::QuantizeTarget::openvino};
constexpr std::array kRoundings = {tools::Rounding::nearest, tools::Rounding::second_order};

bool is_int8(const QuantizeCommand& options) {
  return options.common.precision == Precision::int8;
}

void check_int8(const QuantizeCommand& options) {
  if (options.common.plan.empty()) throw CLI::RequiredError("--plan");
  if (options.weight_bits == 4 && options.target != tools::QuantizeTarget::pipit)
    throw CLI::ValidationError("--weight-bits", "4 is for --target pipit; leave the option out");
  if (options.target == tools::QuantizeTarget::tensorrt && options.activations == "u8")
    throw CLI::ValidationError("--activations", "TensorRT reads no u8; leave the option out for s8");
  if (options.target == tools::QuantizeTarget::openvino && options.activations == "s8")
    throw CLI::ValidationError(
        "--activations",
        "OpenVINO computes a Concat of signed and non-negative s8 wrongly; leave the option "
        "out for u8");
}

void check_usage(const QuantizeCommand& options, const CLI::App& command) {
  options.common.check_precision();
  if (is_int8(options)) check_int8(options);
  for (const char* option : {"--target", "--activations", "--weight-bits"})
    refuse_given(command, option, !is_int8(options),
                 fmt::format("is for --precision int8, not {}", precision_name(options.common.precision)));
  if (options.images.empty()) {
    if (options.rounding == "second-order")
      throw CLI::ValidationError("--rounding", "second-order needs --images, which the model runs on");
    const bool prepares = options.image.has_preprocessing();
    if (prepares || options.limit != 0 || options.strict)
      throw CLI::ValidationError("--images",
                                 "is missing: preprocessing, --limit and --strict are for images");
  } else if (options.rounding == "nearest") {
    throw CLI::ValidationError("--images", "is for --rounding second-order; nearest looks at no images");
  }
  if (options.output.empty()) throw CLI::RequiredError("--output");
  check_output("--output", options.output, {options.model.model, options.common.plan, options.images});
}

tools::QuantizeOptions library_options(const QuantizeCommand& options) {
  tools::QuantizeOptions how;
  options.model.add_to(how.load);
  how.load.device.threads = options.common.threads;
  how.precision = is_int8(options) ? Precision::int8 : options.common.with_options(options.common.precision);
  how.keep = options.common.keep;
  how.target = options.target;
  how.signed_activations = options.activations == "s8";
  how.weight_bits = options.weight_bits;
  if (!options.rounding.empty())
    how.rounding = *std::ranges::find(kRoundings, options.rounding, tools::rounding_name);
  if (!options.images.empty()) how.images = {options.images};
  how.preprocess = options.image.preprocess_options();
  how.limit = options.limit;
  how.strict = options.strict;
  return how;
}

// What second-order rounding changed, over all layers.
std::string rounding_text(const tools::QuantizedFile& file) {
  if (file.rounded.empty()) return {};
  double nearest = 0, rounded = 0;
  for (const tools::RoundedLayer& layer : file.rounded) {
    nearest += layer.nearest;
    rounded += layer.rounded;
  }
  const auto count = static_cast<double>(file.rounded.size());
  return fmt::format(
      "weights rounded on {}: a layer changes by {:.3g} % of its outputs' variance (mean of {}; {:.3g} % "
      "with the "
      "nearest integers)\n",
      counted(file.images, "image"), 100 * rounded / count, counted(std::ssize(file.rounded), "layer"),
      100 * nearest / count);
}

std::string summary(const QuantizeCommand& options, const tools::QuantizedFile& file) {
  const std::string what =
      is_int8(options) ? fmt::format("{} in INT8{}", counted(file.int8_layers, "node"),
                                     options.weight_bits == 4 ? " with weights in 4 bits" : "")
                       : fmt::format("{} with weights in {} bits", counted(file.stored_layers, "node"),
                                     options.common.precision == Precision::w4 ? "4 or 8" : "8");
  return fmt::format("{}: {}, {} in floating point; {}\n{}", printable(options.output), what,
                     counted(file.float_layers, "convolution or fully connected layer",
                             "convolutions or fully connected layers"),
                     mebibytes(static_cast<std::size_t>(file.bytes)), rounding_text(file));
}

int quantize(const QuantizeCommand& options) {
  const std::string& model = options.model.model;
  tools::QuantizeOptions how = library_options(options);
  StageProgress progress("quantize", options.common.quiet);
  how.progress = progress.callbacks();
  const tools::QuantizedFile file = tools::quantize(model, options.common.plan, options.output, how);
  progress.end();
  if (!options.common.quiet) print_notes(file.notes);
  if (options.common.json) {
    fmt::print("{}", file.json);
  } else {
    fmt::print("{}", wrapped(summary(options, file), 2, terminal_width()));
  }
  if (options.target == tools::QuantizeTarget::pipit) {
    print_next(options.common.quiet, {"bench", model, "--against", options.output},
               "both in turns, whole runs");
  }
  return kExitOk;
}

}  // namespace

void add_quantize(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<QuantizeCommand>();
  CLI::App* command = app.add_subcommand(
      "quantize", "Write a model as INT8 ONNX with the scales of a plan, or with weights in 8 or 4 bits");
  options->common.add_precision_to(*command, {"int8", "w8", "w4"},
                                   "What is written: INT8 layers with the scales of --plan, or the weights "
                                   "of fully connected layers and 1x1 "
                                   "convolutions in 8 or 4 bits, which compute in f32 [int8]");
  options->common.add_plan_to(*command);
  options->common.add_keep_to(*command);
  options->common.add_group_size_to(*command);
  options->common.add_threads_to(*command);
  options->common.add_output_to(*command);
  options->model.add_to(*command, true);
  options->image.add_preprocessing_to(*command);
  command
      ->add_option("--output", options->output,
                   "The ONNX file to write; an existing file is replaced (required)")
      ->type_name("FILE");
  one_of(
      command->add_option(
          "--activations", options->activations,
          "Type of the activations: u8 with zero point 128 or s8 with zero point 0; both "
          "hold the same values. TensorRT reads s8 only, OpenVINO needs u8 [u8; s8 with --target tensorrt]"),
      {"u8", "s8"});
  one_of(
      command->add_option(
          "--weight-bits", options->weight_bits,
          "Bits of the weights of INT8 layers. With 4 (w4a8) the file is smaller and no run faster: they are "
          "computed with as those of 8 bits are. The smallest layers, which hold a tenth of the weights, and "
          "rows of fewer than 32 (depthwise convolutions) keep 8. Give --images: the nearest integers of 4 "
          "bits lose much"),
      {"8", "4"})
      ->capture_default_str();
  std::vector<std::string> targets;
  for (const tools::QuantizeTarget target : kTargets) targets.emplace_back(quantize_target_name(target));
  one_of(
      command->add_option_function<std::string>(
          "--target",
          [options](const std::string& name) {
            options->target = *std::ranges::find(kTargets, name, tools::quantize_target_name);
          },
          "What reads the file, for which layers are written in the form that it fuses: pipit (the bits of "
          "--precision int8 --plan), TensorRT, ONNX Runtime or OpenVINO [pipit]"),
      targets);
  command
      ->add_option(
          "--images", options->images,
          "For --rounding second-order: a folder of images or arrays (or one file) of the kind that the "
          "model will see; classes do not matter. Without options about pixels they are prepared as the "
          "plan says, else as the model stores")
      ->type_name("IMAGES");
  std::vector<std::string> roundings;
  for (const tools::Rounding rounding : kRoundings) roundings.emplace_back(rounding_name(rounding));
  one_of(command->add_option(
             "--rounding", options->rounding,
             "How weights become integers: each the nearest, or so that the outputs of each layer on "
             "--images change least [second-order with --images, else nearest]"),
         roundings);
  command
      ->add_option("--limit", options->limit,
                   "Number of --images to use, at even intervals in the list; 0: as many as fit in memory")
      ->check(count_value())
      ->capture_default_str();
  add_strict_to(*command, options->strict);
  command->footer(
      "The file is standard ONNX (opset 13, or a later one that has all layers): QuantizeLinear and "
      "DequantizeLinear\n"
      "around the layers that compute in INT8, batch normalization folded, weights int8 per output channel, "
      "biases\n"
      "int32. pipit runs it without a plan and computes the same bits as with --precision int8 --plan, "
      "unless\n"
      "--images changed the weights; nodes that the plan keeps stay in floating point. Files of w8 and w4 "
      "have\n"
      "DequantizeLinear in blocks of int8 and int4 weights (opset 21, as --weight-bits 4). docs/deploy.md "
      "says "
      "how\n"
      "--target changes the file and how it is deployed, docs/quantization.md how weights are rounded.\n"
      "Examples:\n"
      "  pipit quantize model.onnx --plan plan.json --output model-int8.onnx\n"
      "  pipit quantize model.onnx --plan plan.json --images photos --output model-int8.onnx\n"
      "  pipit quantize model.onnx --plan plan.json --images photos --weight-bits 4 --output "
      "model-w4a8.onnx\n"
      "  pipit quantize model.onnx --precision w4 --images photos --output model-w4.onnx\n"
      "  pipit quantize model.onnx --plan plan.json --target tensorrt --output model-tensorrt.onnx");
  command->callback([options, command, &exit_code] {
    check_usage(*options, *command);
    exit_code = quantize(*options);
  });
}

}  // namespace pipit::internal::apps
