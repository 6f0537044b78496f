#include "quant/mixed_model.h"

#include "quant/equalize.h"
#include "quant/quantize_graph.h"

namespace pipit {

MixedModel::MixedModel(Graph fused, QuantizationPlan plan, CompileOptions options)
    : fused_(std::move(fused)), plan_(std::move(plan)), options_(std::move(options)) {
  const Graph quantized = quantize_graph(fused_, plan_).graph;
  for (const Node& node : quantized.nodes()) {
    const LayerTraits traits = node.layer->traits();
    if (traits.arithmetic == Arithmetic::integers)
      (traits.weights ? layers_ : followers_).push_back(node.name);
  }
  if (layers_.empty())
    fail("nothing would compute in INT8: the plan keeps every layer with weights, or has no scales for them");
}

std::shared_ptr<const ExecutionPlan> MixedModel::build(Graph graph, CompileOptions options,
                                                       bool keep_every_value) const {
  options.planning.keep_every_value = keep_every_value;
  return compile(std::move(graph), options).plans[0];
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_fp32(bool keep_every_value) const {
  CompileOptions options = options_;
  options.planning.precision = Precision::fp32;
  return build(equalize(fused_, plan_.equalized), std::move(options), keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_int8(const std::set<std::string>& floating,
                                                         bool keep_every_value) const {
  CompileOptions options = options_;
  options.planning.precision = Precision::int8;
  options.scales = plan_;
  for (const std::string& layer : floating) options.scales->keep.push_back({layer, "fp32"});
  return build(fused_, std::move(options), keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::alone_in_int8(const std::string& layer) const {
  std::set<std::string> others(layers_.begin(), layers_.end());
  others.erase(layer);
  return in_int8(others);
}

}  // namespace pipit
