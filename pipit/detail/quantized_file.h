// A model with a plan's scales as the bytes of an ONNX file.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "quant/quantization_plan.h"

namespace pipit::detail {

struct QuantizedFile {
  std::string bytes;
  int quantized = 0;  ///< as Quantized (quant/quantize_graph.h)
  int kept = 0;       ///< likewise
  std::vector<std::string>
      differences;  ///< differences_from() the plan of the preprocessing that the model stores
};

/// `model`, its graph as it was read, with the scales of the plan at `path` and `keep` besides what that keeps. Its
/// metadata is the model's, with the plan's preprocessing where it has none. `symbolic_batch`: the batch stays open.
/// Throws what read_plan_for() and write_onnx() do; UnsupportedError for a model that is quantized already.
QuantizedFile quantized_file(Model model, const std::filesystem::path& path,
                             std::span<const QuantizationPlan::Kept> keep, DType activations,
                             bool symbolic_batch);

}  // namespace pipit::detail
