#include "pipit/quantize.h"

#include <array>

#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "models/run_files.h"
#include "pipit/detail/load.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/detail/stages.h"
#include "pipit/measuring/json.h"
#include "pipit/version.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;

namespace {

QdqForm form_for(QuantizeTarget target) {
  switch (target) {
    case QuantizeTarget::pipit:
      break;
    case QuantizeTarget::tensorrt:
      return {.activation = WrittenActivation::plain, .float_bias = true, .rounded_function = false};
    case QuantizeTarget::onnxruntime:
      return {.activation = WrittenActivation::leaky, .rounded_residual = true};
    case QuantizeTarget::openvino:
      return {.activation = WrittenActivation::plain, .float_bias = true, .rounded_moves = false};
  }
  return {};
}

}  // namespace

std::string_view quantize_target_name(QuantizeTarget target) {
  switch (target) {
    case QuantizeTarget::pipit:
      return "pipit";
    case QuantizeTarget::tensorrt:
      return "tensorrt";
    case QuantizeTarget::onnxruntime:
      return "onnxruntime";
    case QuantizeTarget::openvino:
      return "openvino";
  }
  return "?";
}

QuantizedFile quantize(const std::string& model, const std::filesystem::path& plan,
                       const std::filesystem::path& output, const QuantizeOptions& options) {
  const ScopedFloatMode mode;
  if (options.signed_activations && options.target == QuantizeTarget::openvino)
    throw ArgumentError(
        "OpenVINO computes a Concat of signed and non-negative i8 wrongly; leave activations unsigned for "
        "it");
  check_output_file(output, std::array{model, plan.string()});
  const auto begin = [&](const char* stage) { detail::report_stage(options.progress, stage, 0, 1); };
  detail::plan_stages(options.progress, {{detail::kReading}, {"quantizing"}, {"writing"}});
  begin(detail::kReading);
  Model loaded = detail::read_model(model, options.load);
  begin("quantizing");
  const bool is_signed = options.signed_activations || options.target == QuantizeTarget::tensorrt;
  const detail::FileForm form = {.activations = is_signed ? DType::i8 : DType::u8,
                                 .symbolic_batch = !loaded.fixed_batch && !options.load.shapes.batch,
                                 .qdq = form_for(options.target)};
  const detail::QuantizedFile file =
      detail::quantized_file(std::move(loaded), plan, detail::kept_of(options.keep), form);
  begin("writing");
  write_file(output, file.bytes);
  QuantizedFile result;
  result.int8_layers = file.quantized;
  result.float_layers = file.kept;
  result.bytes = static_cast<std::int64_t>(file.bytes.size());
  if (!file.differences.empty()) result.notes.push_back(detail::differences_note(plan, file.differences));
  result.notes.insert(result.notes.end(), file.notes.begin(), file.notes.end());
  result.json = detail::json_text({{"pipit", version()},
                                   {"command", "quantize"},
                                   {"model", model},
                                   {"output", output.string()},
                                   {"preprocess_differences", file.differences},
                                   {"target", quantize_target_name(options.target)},
                                   {"activations", is_signed ? "s8" : "u8"},
                                   {"int8_nodes", file.quantized},
                                   {"kept_nodes", file.kept},
                                   {"bytes", file.bytes.size()}});
  return result;
}

}  // namespace pipit::tools
