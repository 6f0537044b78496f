#include "pipit/detail/quantized_file.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "models/image/preprocess.h"
#include "models/onnx/write/writer.h"
#include "pipit/version.h"
#include "quant/quantize_graph.h"

namespace pipit::internal::detail {

QuantizedFile quantized_file(const std::string& name, const Graph& fused, const QuantizationPlan& plan,
                             std::map<std::string, std::string> metadata, const FileForm& form,
                             std::map<std::string, QuantizedWeights> rounded) {
  const Quantized quantized = quantize_graph(
      fused, plan, {.activations = form.activations, .in_4_bits = form.in_4_bits}, std::move(rounded));
  OnnxWriteOptions options;
  options.metadata = std::move(metadata);
  // How the calibration images were prepared, where the model does not say how its images are.
  if (!plan.preprocess.empty()) options.metadata.emplace(kPreprocessKey, plan.preprocess);
  options.producer_version = version();
  options.symbolic_batch = form.symbolic_batch;
  options.form = form.qdq;
  options.form.int4_weights = !form.in_4_bits.empty();
  QuantizedFile file;
  file.bytes = naming(name, [&] { return write_onnx(quantized.graph, options); });
  file.quantized = quantized.quantized;
  file.kept = quantized.kept;
  file.notes = scale_notes(plan);
  return file;
}

QuantizedFile stored_file(const std::string& name, const Graph& fused, const WeightOnlyOptions& how,
                          std::map<std::string, std::string> metadata, bool symbolic_batch, int threads,
                          std::map<std::string, StoredLayer> rounded) {
  return naming(name, [&] {
    const Rewritten stored = store_weights_only(fused, how, *shared_pool(threads), std::move(rounded));
    if (stored.changes == 0)
      fail_unsupported(
          "no fully connected layer or 1x1 convolution has constant weights to store in few bits");
    OnnxWriteOptions writing;
    writing.metadata = std::move(metadata);
    writing.producer_version = version();
    writing.symbolic_batch = symbolic_batch;
    QuantizedFile file;
    file.bytes = write_onnx(stored.graph, writing);
    file.quantized = stored.changes;
    file.kept = static_cast<int>(std::ranges::count_if(
        stored.graph.nodes(), [&](const Node& node) { return has_constant_weights(stored.graph, node); }));
    return file;
  });
}

}  // namespace pipit::internal::detail
