#include "pipit/detail/quantized_file.h"

#include "engine/base/error.h"
#include "layers/passes/pipeline.h"
#include "models/onnx/write/writer.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/load.h"
#include "pipit/version.h"
#include "quant/kept_layers.h"
#include "quant/quantize_graph.h"

namespace pipit::internal::detail {

QuantizedFile quantized_file(const std::string& name, const Graph& fused, const QuantizationPlan& plan,
                             std::map<std::string, std::string> metadata, const FileForm& form) {
  const Quantized quantized = quantize_graph(fused, plan, {.activations = form.activations});
  OnnxWriteOptions options;
  options.metadata = std::move(metadata);
  // How the calibration images were prepared, where the model does not say how its images are.
  if (!plan.preprocess.empty()) options.metadata.emplace(kPreprocessKey, plan.preprocess);
  options.producer_version = version();
  options.symbolic_batch = form.symbolic_batch;
  options.form = form.qdq;
  QuantizedFile file;
  file.bytes = naming(name, [&] { return write_onnx(quantized.graph, options); });
  file.quantized = quantized.quantized;
  file.kept = quantized.kept;
  file.notes = scale_notes(plan);
  return file;
}

QuantizedFile quantized_file(Model model, const std::filesystem::path& path,
                             std::span<const QuantizationPlan::Kept> keep, const FileForm& form) {
  need_floating_point(model, "quantize");
  QuantizationPlan plan = read_plan_for(path, model.graph);
  std::vector<std::string> differences;
  need_metadata(model, kPreprocessKey);
  if (model.preprocess) differences = differences_from(plan, *model.preprocess);
  const Graph fused = fuse(std::move(model.graph));
  std::vector<std::string> notes = keep_nodes(plan, fused, keep);
  QuantizedFile file = quantized_file(model.name, fused, plan, std::move(model.metadata), form);
  file.differences = std::move(differences);
  file.notes.insert(file.notes.begin(), notes.begin(), notes.end());
  return file;
}

}  // namespace pipit::internal::detail
