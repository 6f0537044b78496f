// Reads ONNX models into graphs. docs/operators.md lists the operators and their restrictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Metadata key of quantized models. With the value "narrow", INT8 tensors whose zero point is in the middle of their
/// type leave its lowest value out (-128, or 0 of u8): the range that quantization plans have, in which pipit then
/// computes. Without it QuantizeLinear saturates at the ends of the type, as ONNX says.
inline constexpr std::string_view kQuantizedRangeKey = "pipit.quantized_range";
inline constexpr std::string_view kNarrowRange = "narrow";

struct OnnxOptions {
  /// Extent given to dimension 0 of a graph input where the file leaves it symbolic.
  std::int64_t batch = 1;
  /// Extents of symbolic dimensions by their names in the file (these go before `batch`).
  std::map<std::string, std::int64_t> dims;
  /// Shapes of graph inputs of which the file leaves extents open, by name (these go before both). A name that stands
  /// for an extent there stands for it in other inputs too.
  std::map<std::string, Shape> shapes;
  /// Values of graph inputs by name, one number for all elements or one for each: such an input is a constant, which
  /// decides conditions and shapes that depend on it.
  std::map<std::string, std::vector<double>> values;
  /// The same as tensors of the inputs' types and shapes; a shape also gives extents that the file leaves open.
  std::map<std::string, std::shared_ptr<const Tensor>> arrays;
  /// The graph outputs to keep, in this order; empty: all. What only others need is left out.
  std::vector<std::string> outputs;
  /// Whether an output, given the inputs, is what a caller is after. Where the first one is not and exactly one other
  /// is, that one comes first.
  std::function<bool(std::span<const TensorDesc> inputs, const TensorDesc& output)> is_wanted_output;
  /// Asked for the value of a graph input when an operator needs a constant there (the shape of a Reshape,
  /// say). Null, or a null answer, makes such a node unsupported. The tensor is copied. Its shape also gives extents of
  /// that input that the file leaves open.
  std::function<const Tensor*(const std::string& input)> bind_input;
  /// Makes constants of the graph inputs that bind_input has a value for and that no node of the file reads as its
  /// first input: weights, biases, scales, indices, which some kernels want to know beforehand; and of single integers
  /// and conditions, which decide branches.
  bool freeze_operands = false;
  /// Most bytes that constants computed while reading may take together. A small file can ask for any number
  /// (ConstantOfShape, Tile); reading it then fails.
  std::size_t max_folded_bytes = std::size_t{1} << 30;
};

struct OnnxModel {
  Graph graph;                                  ///< one node or more per operator, nothing fused
  std::map<std::string, std::string> metadata;  ///< metadata_props
  std::int64_t opset = 0;                       ///< of the default domain
  std::int64_t ir_version = 0;
  std::string producer;         ///< "name version"
  bool symbolic_batch = false;  ///< the file leaves dimension 0 of some graph input open
  /// Which inputs, outputs and initializers are float16 or bfloat16 in the file, in words; empty where none. All are
  /// f32 here, inputs and outputs included.
  std::string widened;
  std::vector<std::string>
      frozen;  ///< the inputs that OnnxOptions::freeze_operands made constants, in the file's order
  std::vector<std::string> unread;  ///< inputs that no output needs, which are none of the graph's
};

/// Reads a .onnx file (IR versions 3 to 14, opsets 1 to 28, the old ones in part), with external data from the file's
/// own folder. Throws UnsupportedError listing every node, initializer and input that is not supported, one line each;
/// Error naming file, node and value when the file is broken.
OnnxModel read_onnx(const std::filesystem::path& file, const OnnxOptions& options = {});

/// read_onnx of bytes in memory, whose errors name no file. External data is looked up in `folder`; an empty folder
/// allows none.
OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::filesystem::path& folder,
                     const OnnxOptions& options = {});

struct NamedTensor {
  std::string name;
  Tensor tensor;           ///< row_major
  double stored_step = 0;  ///< step_of_widened() of the type in the file
};

/// Reads a file with one serialized TensorProto (input_0.pb of the ONNX test layout).
NamedTensor read_named_tensor(const std::filesystem::path& file);

}  // namespace pipit::internal
