#include "engine/described_node.h"

#include <algorithm>

namespace pipit {

namespace {

void widen(TensorDesc& desc) {
  if (desc.dtype == DType::f16) desc.dtype = DType::f32;
}

// In INT8 and with stored weights the graph itself says what computes in integers; everything else computes in what
// it is stored as.
Precision arithmetic(Precision precision, const std::vector<const TensorDesc*>& inputs,
                     const std::vector<TensorDesc>& outputs) {
  if (precision == Precision::fp32 || precision == Precision::fp16) return precision;
  const auto half = [](const TensorDesc& desc) { return desc.dtype == DType::f16; };
  const bool reads = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const TensorDesc* input) { return input != nullptr && half(*input); });
  return reads || std::any_of(outputs.begin(), outputs.end(), half) ? Precision::fp16 : Precision::fp32;
}

std::vector<std::shared_ptr<const Tensor>> constants_of(const Graph& graph, const Node& node) {
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (const ValueId id : node.inputs) {
    constants.push_back(id == kNoValue ? nullptr : graph.value(id).constant);
  }
  return constants;
}

}  // namespace

DescribedNode::DescribedNode(const Graph& graph, const Node& node, const PlanOptions& options, bool on_host)
    : inputs(graph.input_descs(node)),
      outputs(graph.output_descs(node)),
      constants(constants_of(graph, node)),
      spec{*node.layer,
           inputs,
           outputs,
           constants,
           on_host ? Precision::fp32 : arithmetic(options.precision, inputs, outputs),
           options.threads,
           options.gpu} {
  if (!on_host) return;
  widened.reserve(inputs.size());
  for (const TensorDesc*& input : inputs) {
    if (input == nullptr) continue;
    widened.push_back(*input);
    widen(widened.back());
    input = &widened.back();
  }
  for (TensorDesc& output : outputs) widen(output);
}

}  // namespace pipit
