// A GraphProto under construction: names, initializers, nodes, and under which name each value of the graph is found.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "engine/graph/graph.h"
#include "layers/ops/clamp.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantization.h"
#include "layers/ops/unary.h"
#include "layers/ops/window.h"
#include "models/onnx/write/qdq_form.h"
#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// Layers are written as chains of nodes: add() what computes, then store() the last one's result as a value.
class GraphWriter {
 public:
  using Names = std::vector<std::string>;

  GraphWriter(const Graph& graph, onnx_pb::GraphProto& proto, int opset, bool symbolic_batch,
              const QdqForm& form);

  const Graph& graph() const { return graph_; }
  /// Of the file, file_opset() at least.
  int opset() const { return opset_; }
  const QdqForm& form() const { return form_; }
  const TensorDesc& desc(ValueId id) const { return graph_.value(id).desc; }

  /// What nodes that compute in floating point read: the value, INT8 ones after one DequantizeLinear. A constant
  /// becomes an initializer on the first call.
  std::string operand(ValueId id);
  /// operand(), or "" for an absent input.
  std::string optional_operand(ValueId id) { return id == kNoValue ? "" : operand(id); }
  /// How an INT8 value is quantized; throws Error for one that store() did not write so.
  const Quantization& quantization(ValueId id) const;
  /// Whether the graph has integers here, written as such or as the real numbers that they stand for.
  bool is_integer(ValueId id) const { return quantizations_[static_cast<std::size_t>(id)].has_value(); }
  /// The node that writes a value, and the node that alone reads it; null where there is none.
  const Node* producer(ValueId id) const { return producers_[static_cast<std::size_t>(id)]; }
  const Node* only_reader(ValueId id) const { return readers_[static_cast<std::size_t>(id)]; }

  /// An initializer named `wanted`, with a number appended where that is taken. Returns its name.
  std::string initializer(const std::string& wanted, const Tensor& tensor);
  /// The same of integers (i8) from -8 to 7 as INT4, two in a byte.
  std::string int4_initializer(const std::string& wanted, const Tensor& tensor);
  std::string integers(const std::string& wanted, const std::vector<std::int64_t>& values);
  /// A number of the type of `like`; f32 without it and for INT8 values.
  std::string number(const std::string& wanted, double value, ValueId like = kNoValue);
  /// Initializers with scale and zero point; tensors that are quantized alike share them.
  Names scale_and_zero_point(const Quantization& q);

  /// Appends a node with `outputs` results of its own names; last() is it.
  onnx_pb::NodeProto& add(const std::string& op, const std::string& name, const Names& inputs,
                          int outputs = 1);
  std::string last_result() const { return last_->output(0); }
  /// The result of last() rounded to `q`, between QuantizeLinear and DequantizeLinear.
  void add_rounding(const std::string& name, const Quantization& q);
  /// Relu, Clip or nothing after last(), as form() writes it. With a quantization the result is rounded to it before,
  /// unless form() says otherwise: that changes no integer of what store() then makes of it, and runtimes without a
  /// Relu in their INT8 layers find the layer itself quantized.
  void add_activation(const std::string& name, const Clamp& clamp, const Quantization& rounded = {});
  /// Result `output` of the last node becomes the value, through a QuantizeLinear where `q` is INT8.
  void store(ValueId id, const Quantization& q = {}, int output = 0);
  /// Likewise where all readers get what the integers of `q` stand for, without a QuantizeLinear.
  void store_real(ValueId id, const Quantization& q, int output = 0);
  /// Likewise for output `output` of a layer that only moves elements, as form() writes it: with the quantization of
  /// its input 0, in f32 where that has none.
  void store_moved(const Node& node, int output = 0);
  /// Writes a Quantize, or a Dequantize of an INT8 value.
  void quantize(const Node& node, const Quantization& q);
  void dequantize(const Node& node);
  /// Marks the results of a node that cannot be written as there, so that others are still looked at.
  void give_up(const Node& node);
  /// Whether the INT8 values written leave the lowest integer out; throws UnsupportedError when only some do.
  bool narrow_range() const;
  /// Identity nodes for outputs that no node writes under their names.
  void finish_outputs();

 private:
  std::string unique(const std::string& wanted, std::unordered_set<std::string>& taken);
  std::string claim(ValueId id);
  void add_quantize(const std::string& name, const std::string& real, ValueId id, const Quantization& q);

  const Graph& graph_;
  onnx_pb::GraphProto& proto_;
  int opset_;
  QdqForm form_;
  onnx_pb::NodeProto* last_ = nullptr;
  std::unordered_set<std::string> value_names_;
  std::unordered_set<std::string> node_names_;
  std::vector<std::string> names_;  // per value; empty: not written yet
  std::vector<std::string> dequantized_;
  std::vector<std::optional<Quantization>> quantizations_;
  std::vector<bool> real_;  // of those, which are written as real numbers
  std::vector<const Node*> producers_;
  std::vector<const Node*> readers_;
  // By scale, zero point and DType, as int: with an enumeration of ours the map's own symbols would be visible.
  std::map<std::tuple<float, int, int>, Names> scales_;
  bool any_narrow_ = false;
  bool any_full_ = false;
};

/// The opset that the graph is written in: 13 where that has all of its layers in this form, else the first that has.
int file_opset(const Graph& graph, const QdqForm& form);

/// TensorProto.DataType. Throws UnsupportedError for f16.
std::int32_t data_type(DType type);

void set(onnx_pb::NodeProto& node, const char* name, std::int64_t value);
void set(onnx_pb::NodeProto& node, const char* name, float value);
void set(onnx_pb::NodeProto& node, const char* name, const char* value);
void set(onnx_pb::NodeProto& node, const char* name, const std::vector<std::int64_t>& values);
void set(onnx_pb::NodeProto& node, const char* name, const std::vector<float>& values);
void set(onnx_pb::NodeProto& node, const char* name, const std::vector<const char*>& values);
/// kernel_shape, strides and pads; dilations and ceil_mode where they say something.
void set_window(onnx_pb::NodeProto& node, const Window& window);

/// Adds the node of a pool, without storing its result.
void add_pool(GraphWriter& writer, const Node& node, const PoolAttributes& attributes);

/// Adds the nodes of a function of one tensor, likewise.
void add_unary(GraphWriter& writer, const Node& node, const UnaryAttributes& attributes);

/// Writes one node of the graph. Returns false for layers of another kind, throws UnsupportedError for attributes that
/// have no form in the file's opset.
bool write_conv_layer(GraphWriter& writer, const Node& node);  // Conv, ConvTranspose, Gemm, MatMul, Pool
bool write_elementwise_layer(GraphWriter& writer,
                             const Node& node);  // Unary, Binary, normalizations, Softmax, Reduce
bool write_movement_layer(GraphWriter& writer,
                          const Node& node);  // Reshape, Concat and what else moves elements
bool write_selecting_layer(GraphWriter& writer, const Node& node);  // Where, ArgMax, Cast, Resize, GridSample
bool write_position_layer(GraphWriter& writer,
                          const Node& node);  // by positions that are data, TopK, CumSum, Recurrent
bool write_int8_layer(GraphWriter& writer, const Node& node);
bool write_stored_layer(GraphWriter& writer, const Node& node);  // WConv, WLinear

}  // namespace pipit::internal::onnx
