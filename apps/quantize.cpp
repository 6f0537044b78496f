// pipit quantize MODEL --plan PLAN --output FILE: the model with its plan's scales as a QDQ ONNX file.
#include "apps/commands.h"
#include "apps/int8.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/runner.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "engine/file.h"
#include "engine/version.h"
#include "layers/fuse/passes.h"
#include "models/image/preprocess.h"
#include "models/onnx/writer.h"
#include "quant/keep.h"
#include "quant/quantize_graph.h"

namespace pipit::apps {

namespace {

struct QuantizeCommand {
  CommonOptions common;
  ModelOptions model;
  std::string output;
  std::string activations = "u8";
};

// What the file says of itself: the model's own metadata, and how the calibration images were prepared where the model
// does not say how its images are.
std::map<std::string, std::string> metadata_of(const Model& model, const PrecisionPlan& plan) {
  std::map<std::string, std::string> metadata = model.metadata;
  if (!plan.preprocess.empty()) metadata.emplace(kPreprocessKey, plan.preprocess);
  return metadata;
}

// write_onnx() with errors that begin with the model.
std::string write(const std::string& model, const Graph& graph, const OnnxWriteOptions& options) {
  try {
    return write_onnx(graph, options);
  } catch (const UnsupportedError& e) {
    fail_unsupported("{}: {}", model, e.what());
  } catch (const Error& e) {
    fail("{}: {}", model, e.what());
  }
}

void check_usage(const QuantizeCommand& options) {
  if (options.common.plan.empty()) throw CLI::RequiredError("--plan");
  if (options.output.empty()) throw CLI::RequiredError("--output");
  check_output("--output", options.output, {options.model.model, options.common.plan});
}

int quantize(const QuantizeCommand& options) {
  check_usage(options);
  Model model = options.model.load();
  if (is_quantised(model.graph))
    fail_unsupported("{} is quantised already: its scales are in the file", model.name);
  PrecisionPlan plan = load_precision_plan(options.common.plan, model.graph);
  std::vector<std::string> differences;
  if (model.preprocess)
    differences = compare_preprocess(plan, options.common.plan, *model.preprocess, options.common.quiet);
  QuantizeOptions quantize_options;
  quantize_options.activations = options.activations == "s8" ? DType::i8 : DType::u8;
  const Graph fused = fuse(std::move(model.graph));
  keep_nodes(plan, fused, options.common.kept());
  const Quantized quantized = quantize_graph(fused, plan, quantize_options);
  OnnxWriteOptions write_options;
  write_options.metadata = metadata_of(model, plan);
  write_options.producer_version = version();
  write_options.symbolic_batch = !model.fixed_batch && !options.model.batch && options.model.dims.empty() &&
                                 options.model.shapes.empty();
  const std::string bytes = write(model.name, quantized.graph, write_options);
  write_file(options.output, bytes);
  if (options.common.json) {
    print_json({{"pipit", version()},
                {"command", "quantize"},
                {"model", model.name},
                {"output", options.output},
                {"preprocess_differences", differences},
                {"activations", options.activations},
                {"int8_nodes", quantized.quantised},
                {"kept_nodes", quantized.kept},
                {"bytes", bytes.size()}});
  } else {
    fmt::print("{}: {} in INT8, {} in floating point; {:.2f} MiB\n", printable(options.output),
               counted(quantized.quantised, "node"),
               counted(quantized.kept, "convolution or fully connected layer",
                       "convolutions or fully connected layers"),
               static_cast<double>(bytes.size()) / (1 << 20));
  }
  return kExitOk;
}

}  // namespace

void add_quantize(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<QuantizeCommand>();
  CLI::App* command = app.add_subcommand("quantize", "Write a model as INT8 ONNX with the scales of a plan");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  const std::string why = "quantize writes INT8 and runs nothing";
  without_options(*command, foreign_on_the_cpu({"fp32", "int8"}, false), why);
  without_options(*command, {{"--kernel", {}}, {"--conv-backend", {}}, {"--no-winograd", {}}}, why);
  command->add_option("--output", options->output,
                      "The ONNX file to write; replaced when it exists (required)");
  command
      ->add_option("--activations", options->activations,
                   "Type of the activations: u8 with zero point 128, or s8 with 0; both hold the same values")
      ->check(CLI::IsMember({"u8", "s8"}))
      ->capture_default_str();
  command->footer(
      "The file is standard ONNX (opset 13): QuantizeLinear and DequantizeLinear around the layers that "
      "compute in\n"
      "INT8, batch normalisation folded, weights int8 per output channel, biases int32. pipit runs it "
      "without a plan,\n"
      "with the bits that --precision int8 --plan gives; nodes that the plan keeps stay in floating point.\n"
      "Example: pipit quantize model.onnx --plan plan.json --output model-int8.onnx");
  command->callback([options, &exit_code] { exit_code = quantize(*options); });
}

}  // namespace pipit::apps
