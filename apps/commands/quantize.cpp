// pipit quantize MODEL --plan PLAN --output FILE: the model with its plan's scales as a QDQ ONNX file.
#include "pipit/quantize.h"

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "engine/platform/host_memory.h"

namespace pipit::internal::apps {

namespace {

struct QuantizeCommand {
  CommonOptions common;
  ModelOptions model;
  std::string output;
  std::string activations = "u8";
};

int quantize(const QuantizeCommand& options) {
  const std::string& model = options.model.model;
  if (options.common.plan.empty()) throw CLI::RequiredError("--plan");
  if (options.output.empty()) throw CLI::RequiredError("--output");
  check_output("--output", options.output, {model, options.common.plan});
  tools::QuantizeOptions how;
  options.model.add_to(how.load);
  how.keep = options.common.keep;
  how.signed_activations = options.activations == "s8";
  const tools::QuantizedFile file = tools::quantize(model, options.common.plan, options.output, how);
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
  print_next(options.common.quiet, {"bench", model, "--against", options.output},
             "both in turns, whole runs");
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
  one_of(command->add_option("--activations", options->activations,
                             "Type of the activations: u8 with zero point 128 or s8 with zero point 0; both "
                             "hold the same values"),
         {"u8", "s8"})
      ->capture_default_str();
  command->footer(
      "The file is standard ONNX (opset 13, or a later one that has all layers): QuantizeLinear and "
      "DequantizeLinear\n"
      "around the layers that compute in INT8, batch normalization folded, weights int8 per output channel, "
      "biases\n"
      "int32. pipit runs it without a plan and computes the same bits as with --precision int8 --plan; nodes "
      "that the\n"
      "plan keeps stay in floating point.\n"
      "Example: pipit quantize model.onnx --plan plan.json --output model-int8.onnx");
  command->callback([options, &exit_code] { exit_code = quantize(*options); });
}

}  // namespace pipit::internal::apps
