// Writes graphs as ONNX models.
#pragma once

#include <map>
#include <string>

#include "engine/graph/graph.h"
#include "models/onnx/write/qdq_form.h"

namespace pipit::internal {

struct OnnxWriteOptions {
  std::map<std::string, std::string> metadata;  ///< metadata_props
  std::string producer_version;
  /// Dimension 0 of inputs and outputs is written as a symbol where all inputs have it as 1 and every layer keeps it.
  bool symbolic_batch = false;
  QdqForm form;  ///< of INT8 layers
};

/// The graph as a serialized ONNX model: IR version 8 and opset 13 of the default domain, or the first ones that have
/// all of its layers (up to 10 and 21). For graphs without layouts, as fuse() and quantize_graph() leave them; nodes,
/// inputs and outputs keep their names. What was fused is written out again (Conv, Add, Relu), and INT8 layers as
/// DequantizeLinear -> layer -> QuantizeLinear, as OnnxWriteOptions::form says: weights i8 per output channel, biases
/// i32 or f32. WConv and WLinear get a DequantizeLinear of their int4 or int8 weights in blocks. parse_onnx() makes the
/// same layers of it. The ranges of INT8 layers are the narrow ones where the graph's are (reader.h,
/// kQuantizedRangeKey).
/// Throws UnsupportedError naming all layers that have no form here (docs/operators.md lists those that have), Error
/// when the model would pass 2 GB.
std::string write_onnx(const Graph& graph, const OnnxWriteOptions& options = {});

}  // namespace pipit::internal
