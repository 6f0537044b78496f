// pipit quantize MODEL --plan PLAN --output FILE: the model with its plan's scales as a QDQ ONNX file.
#include "pipit/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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
  CommonOptions common;
  ModelOptions model;
  std::string output;
  std::string activations;
  tools::QuantizeTarget target = tools::QuantizeTarget::pipit;
};

constexpr std::array kTargets = {tools::QuantizeTarget::pipit, tools::QuantizeTarget::tensorrt,
                                 tools::QuantizeTarget::onnxruntime, tools::QuantizeTarget::openvino};

int quantize(const QuantizeCommand& options) {
  const std::string& model = options.model.model;
  if (options.common.plan.empty()) throw CLI::RequiredError("--plan");
  if (options.output.empty()) throw CLI::RequiredError("--output");
  if (options.target == tools::QuantizeTarget::tensorrt && options.activations == "u8")
    throw CLI::ValidationError("--activations", "TensorRT reads no u8; leave the option out for s8");
  if (options.target == tools::QuantizeTarget::openvino && options.activations == "s8")
    throw CLI::ValidationError(
        "--activations",
        "OpenVINO computes a Concat of signed and non-negative s8 wrongly; leave the option "
        "out for u8");
  check_output("--output", options.output, {model, options.common.plan});
  tools::QuantizeOptions how;
  options.model.add_to(how.load);
  how.keep = options.common.keep;
  how.target = options.target;
  how.signed_activations = options.activations == "s8";
  StageProgress progress("quantize", options.common.quiet);
  how.progress = progress.callbacks();
  const tools::QuantizedFile file = tools::quantize(model, options.common.plan, options.output, how);
  progress.end();
  if (!options.common.quiet) print_notes(file.notes);
  if (options.common.json) {
    fmt::print("{}", file.json);
  } else {
    fmt::print("{}", wrapped(fmt::format("{}: {} in INT8, {} in floating point; {}\n",
                                         printable(options.output), counted(file.int8_layers, "node"),
                                         counted(file.float_layers, "convolution or fully connected layer",
                                                 "convolutions or fully connected layers"),
                                         mebibytes(static_cast<std::size_t>(file.bytes))),
                             2, terminal_width()));
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
  CLI::App* command = app.add_subcommand("quantize", "Write a model as INT8 ONNX with the scales of a plan");
  options->common.add_plan_to(*command);
  options->common.add_keep_to(*command);
  options->common.add_output_to(*command);
  options->model.add_to(*command, true);
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
  command->footer(
      "The file is standard ONNX (opset 13, or a later one that has all layers): QuantizeLinear and "
      "DequantizeLinear\n"
      "around the layers that compute in INT8, batch normalization folded, weights int8 per output channel, "
      "biases\n"
      "int32. pipit runs it without a plan and computes the same bits as with --precision int8 --plan; nodes "
      "that the\n"
      "plan keeps stay in floating point. docs/deploy.md says how --target changes the file and how it is "
      "deployed.\n"
      "Examples:\n"
      "  pipit quantize model.onnx --plan plan.json --output model-int8.onnx\n"
      "  pipit quantize model.onnx --plan plan.json --target tensorrt --output model-tensorrt.onnx");
  command->callback([options, &exit_code] { exit_code = quantize(*options); });
}

}  // namespace pipit::internal::apps
