#include "pipit/detail/quantised_file.h"

#include "engine/error.h"
#include "engine/version.h"
#include "layers/fuse/passes.h"
#include "models/onnx/writer.h"
#include "pipit/detail/load.h"
#include "quant/keep.h"
#include "quant/quantize_graph.h"

namespace pipit::detail {

QuantisedFile quantised_file(Model model, const std::filesystem::path& path,
                             std::span<const PrecisionPlan::Kept> keep, DType activations,
                             bool symbolic_batch) {
  if (is_quantised(model.graph))
    fail_unsupported("{} is quantised already: its scales are in the file", model.name);
  PrecisionPlan plan = read_plan_for(path, model.graph);
  QuantisedFile file;
  if (model.preprocess) file.differences = differences_from(plan, *model.preprocess);
  const Graph fused = fuse(std::move(model.graph));
  keep_nodes(plan, fused, keep);
  const Quantized quantized = quantize_graph(fused, plan, {.activations = activations});
  OnnxWriteOptions options;
  options.metadata = std::move(model.metadata);
  // How the calibration images were prepared, where the model does not say how its images are.
  if (!plan.preprocess.empty()) options.metadata.emplace(kPreprocessKey, plan.preprocess);
  options.producer_version = version();
  options.symbolic_batch = symbolic_batch;
  file.bytes = naming(model.name, [&] { return write_onnx(quantized.graph, options); });
  file.quantised = quantized.quantised;
  file.kept = quantized.kept;
  return file;
}

}  // namespace pipit::detail
