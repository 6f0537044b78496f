#include "compile/mixed_model.h"

#include "quant/equalize.h"
#include "quant/kept_layers.h"
#include "quant/quantize_graph.h"

namespace pipit::internal {

MixedModel::MixedModel(Graph fused, QuantizationPlan plan, CompileOptions options, Precision kept_as)
    : fused_(std::move(fused)), plan_(std::move(plan)), options_(std::move(options)), kept_as_(kept_as) {
  if (!is_kept_precision(precision_name(kept_as)))
    fail("layers are kept in fp32, fp16 or bf16, not {}", precision_name(kept_as));
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
  options.fused = true;
  return compile(std::move(graph), options).plans[0];
}

std::shared_ptr<const ExecutionPlan> MixedModel::in(Precision precision, bool keep_every_value) const {
  CompileOptions options = options_;
  options.planning.precision = precision;
  return build(equalize(fused_, plan_.equalized), std::move(options), keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_fp32(bool keep_every_value) const {
  return in(Precision::fp32, keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_bf16() const {
  return in(Precision::bf16, false);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_int8(const std::set<std::string>& floating,
                                                         bool keep_every_value) const {
  return in_int8_but_for(floating, kept_as_, keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_int8_but_for(const std::set<std::string>& floating,
                                                                 Precision kept_as,
                                                                 bool keep_every_value) const {
  CompileOptions options = options_;
  options.planning.precision = Precision::int8;
  options.scales = plan_;
  for (const std::string& layer : floating)
    options.scales->keep.push_back({layer, std::string(precision_name(kept_as))});
  return build(fused_, std::move(options), keep_every_value);
}

std::shared_ptr<const ExecutionPlan> MixedModel::alone_in_int8(const std::string& layer) const {
  std::set<std::string> others(layers_.begin(), layers_.end());
  others.erase(layer);
  // bfloat16 has one bit more than INT8: that noise is not this layer's.
  return in_int8_but_for(others, kept_as_ == Precision::bf16 ? Precision::fp32 : kept_as_, false);
}

bool MixedModel::floating_point_is_fp32() const {
  const bool cpu = options_.planning.device == DeviceKind::cpu;
  return kept_as_ == Precision::fp32 || (kept_as_ == Precision::fp16 && cpu);
}

std::shared_ptr<const ExecutionPlan> MixedModel::in_floating_point() const {
  if (floating_point_is_fp32()) return in_fp32();
  std::set<std::string> all(layers_.begin(), layers_.end());
  all.insert(followers_.begin(), followers_.end());
  return in_int8(all);
}

}  // namespace pipit::internal
