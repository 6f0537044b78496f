#include "quant/export_scales.h"

#include <algorithm>
#include <bit>
#include <map>

#include "engine/base/error.h"
#include "quant/calibration.h"

namespace pipit::internal {

namespace {

// Both formats are read by words.
std::string word(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c <= ' '; }, '_');
  return name;
}

}  // namespace

std::string to_trt_cache(const QuantizationPlan& plan) {
  const bool entropy = plan.method.method == ThresholdMethod::entropy;
  std::string text = fmt::format("TRT-8601-{}\n", entropy ? "EntropyCalibration2" : "MinMaxCalibration");
  for (const TensorScale& tensor : plan.tensors)
    text += fmt::format("{}: {:08x}\n", word(tensor.name), std::bit_cast<std::uint32_t>(tensor.scale));
  return text;
}

std::string to_ncnn_table(const QuantizationPlan& plan, const Graph& graph,
                          const std::vector<WeightScales>& weights) {
  std::map<std::string, float> scales;
  for (const TensorScale& tensor : plan.tensors) scales.emplace(tensor.name, tensor.scale);
  const std::vector<ValueId> computed = computed_values(graph);
  std::string params, inputs;
  for (const WeightScales& layer : weights) {
    // ncnn computes in INT8 what the table names.
    if (std::any_of(plan.keep.begin(), plan.keep.end(),
                    [&](const auto& kept) { return kept.node == layer.node; }))
      continue;
    const auto scale = scales.find(graph.value(computed[static_cast<std::size_t>(layer.input)]).name);
    if (scale == scales.end()) continue;
    params += word(layer.node) + "_param_0";
    for (const float s : layer.scales) params += fmt::format(" {:f}", 1 / static_cast<double>(s));
    params += "\n";
    inputs += fmt::format("{} {:f}\n", word(layer.node), 1 / static_cast<double>(scale->second));
  }
  return params + inputs;
}

}  // namespace pipit::internal
