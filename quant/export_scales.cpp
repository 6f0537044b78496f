#include "quant/export_scales.h"

#include <algorithm>
#include <bit>
#include <cstdio>
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

// NV_TENSORRT_VERSION: 8601 is 8.6.1, 100300 is 10.3.0.
int trt_number(const std::string& release) {
  int major = 0, minor = 0, patch = 0, read = 0;
  const int parts = std::sscanf(release.c_str(), "%2d.%2d.%2d%n", &major, &minor, &patch, &read);
  if (parts != 3 || read != static_cast<int>(release.size()) || major < 5 || minor < 0 || patch < 0)
    throw ArgumentError(fmt::format("TensorRT's release is '{}'; expected one such as 10.3.0", release));
  if (major > 10)
    throw ArgumentError(fmt::format(
        "TensorRT {} reads no calibration cache; write a file with `pipit quantize --target tensorrt`",
        release));
  return major < 10 ? 1000 * major + 100 * minor + patch : 10000 * major + 100 * minor + patch;
}

}  // namespace

std::string to_trt_cache(const QuantizationPlan& plan, const std::string& release) {
  std::string text = fmt::format("TRT-{}-EntropyCalibration2\n", trt_number(release));
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
