// A model with a plan's scales, or with weights in 8 or 4 bits, as the bytes of an ONNX file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/onnx/write/qdq_form.h"
#include "quant/int8_weights.h"
#include "quant/quantization_plan.h"
#include "quant/weight_only.h"

namespace pipit::internal::detail {

struct QuantizedFile {
  std::string bytes;
  int quantized = 0;  ///< as Quantized (quant/quantize_graph.h), or layers that are stored in few bits
  int kept = 0;       ///< layers with weights that are neither
  std::vector<std::string> notes;  ///< scale_notes() of the plan
};

/// How a file is written.
struct FileForm {
  DType activations = DType::u8;         ///< i8 with zero point 0 or u8 with 128
  bool symbolic_batch = false;           ///< the batch stays open
  std::set<std::string> in_4_bits = {};  ///< as in quantize_graph()
  QdqForm qdq = {};
};

/// What fuse() made of a model, or pruning of that, with the scales of `plan` and the weights that were `rounded` for
/// them (quantize_graph(), quant/quantize_graph.h). `metadata` is the model's; the plan's preprocessing is added
/// where it has none. Errors begin with `name`. Throws what write_onnx() does.
QuantizedFile quantized_file(const std::string& name, const Graph& fused, const QuantizationPlan& plan,
                             std::map<std::string, std::string> metadata, const FileForm& form,
                             std::map<std::string, QuantizedWeights> rounded = {});

/// The same with weights in few bits (store_weights_only(), quant/weight_only.h). Throws UnsupportedError where no
/// layer can be stored so.
QuantizedFile stored_file(const std::string& name, const Graph& fused, const WeightOnlyOptions& how,
                          std::map<std::string, std::string> metadata, bool symbolic_batch, int threads,
                          std::map<std::string, StoredLayer> rounded = {});

}  // namespace pipit::internal::detail
