// A model with a plan's scales as the bytes of an ONNX file.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/onnx/write/qdq_form.h"
#include "quant/quantization_plan.h"

namespace pipit::internal::detail {

struct QuantizedFile {
  std::string bytes;
  int quantized = 0;               ///< as Quantized (quant/quantize_graph.h)
  int kept = 0;                    ///< likewise
  std::vector<std::string> notes;  ///< scale_notes() of the plan
  std::vector<std::string>
      differences;  ///< differences_from() the plan of the preprocessing that the model stores
};

/// How a file is written.
struct FileForm {
  DType activations = DType::u8;  ///< i8 with zero point 0 or u8 with 128
  bool symbolic_batch = false;    ///< the batch stays open
  QdqForm qdq = {};
};

/// What fuse() made of a model, or pruning of that, with the scales of `plan`. `metadata` is the model's; the plan's
/// preprocessing is added where it has none. Errors begin with `name`. Throws what write_onnx() does.
QuantizedFile quantized_file(const std::string& name, const Graph& fused, const QuantizationPlan& plan,
                             std::map<std::string, std::string> metadata, const FileForm& form);

/// `model`, its graph as it was read, with the scales of the plan at `path` and `keep` besides what that keeps.
/// Throws what read_plan_for() and write_onnx() do; UnsupportedError for a model that is quantized already.
QuantizedFile quantized_file(Model model, const std::filesystem::path& path,
                             std::span<const QuantizationPlan::Kept> keep, const FileForm& form);

}  // namespace pipit::internal::detail
