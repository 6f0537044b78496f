// What a converter sees of one ONNX node, and how it adds layers.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/onnx/read/attribute_reader.h"
#include "models/onnx/read/emitter.h"
#include "models/onnx/read/functions.h"
#include "models/onnx/read/reader.h"
#include "models/onnx/tensor_proto.h"

namespace pipit::internal::onnx {

/// What all nodes of one model share.
struct ImportContext {
  const OnnxOptions& options;
  Emitter emitter;
  ExternalData external;
  /// Graph inputs, and the constants that options.bind_input gave for them.
  std::unordered_map<ValueId, std::shared_ptr<const Tensor>> inputs;
  bool narrow_range = false;
};

/// Exceptions thrown here do not name the node; the importer puts its name before them.
class NodeContext {
 public:
  NodeContext(ImportContext& context, const FlatNode& node, std::vector<ValueId> inputs,
              std::vector<bool> wanted_outputs);

  AttributeReader& attributes() { return attributes_; }
  std::int64_t opset() const { return node_.opset; }

  int input_count() const { return static_cast<int>(inputs_.size()); }
  int output_count() const { return node_.proto->output_size(); }
  bool has_input(int index) const { return optional_input(index) != kNoValue; }
  /// Throws Error when the input is absent.
  ValueId input(int index) const;
  /// kNoValue when absent.
  ValueId optional_input(int index) const;
  /// Every input; kNoValue where absent.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  /// True when some node or the graph reads this output.
  bool wants_output(int index) const;

  const Value& value(ValueId id) const { return context_.emitter.builder().value(id); }
  const TensorDesc& desc(ValueId id) const { return context_.emitter.desc(id); }
  const Shape& input_shape(int index) const { return desc(input(index)).shape; }
  bool is_constant(int index) const { return is_constant_value(input(index)); }
  bool is_constant_value(ValueId id) const { return value(id).is_constant(); }

  /// The value of an input where it is known while reading; asks OnnxOptions::bind_input for graph inputs. Null when
  /// it is computed at run time; throws Error when it is absent.
  std::shared_ptr<const Tensor> known(int index);
  /// known() for an input that must be (`what` names it in messages): throws UnsupportedError when it is computed at
  /// run time.
  std::shared_ptr<const Tensor> constant(int index, const char* what);
  /// A constant i32 or i64 input of rank 0 or 1.
  std::vector<std::int64_t> constant_integers(int index, const char* what);
  std::optional<std::vector<std::int64_t>> optional_integers(int index, const char* what);
  /// A constant input of one element, any dtype, as a double.
  double constant_number(int index, const char* what);

  /// The file's INT8 tensors leave the lowest value out (reader.h, kQuantizedRangeKey).
  bool narrow_range() const { return context_.narrow_range; }

  /// Adds a layer and returns its outputs. The one that the node stands for takes the node's name; others
  /// give a `part` to put after it.
  std::vector<ValueId> emit_all(LayerPtr layer, std::vector<ValueId> inputs, const char* part = nullptr);
  /// emit_all for a layer of which only output 0 is read.
  ValueId emit(LayerPtr layer, std::vector<ValueId> inputs, const char* part = nullptr) {
    return emit_all(std::move(layer), std::move(inputs), part).at(0);
  }
  template <typename L, typename... Args>
  ValueId emit(std::vector<ValueId> inputs, Args&&... args) {
    return emit(std::make_shared<L>(std::forward<Args>(args)...), std::move(inputs));
  }
  /// Reserves memory for a tensor that the converter fills, and adds it.
  Tensor allocate(const TensorDesc& desc);
  ValueId add_constant(Tensor tensor, const char* part = nullptr);
  /// The tensor of an attribute.
  Tensor read_tensor(const onnx_pb::TensorProto& proto);

 private:
  std::string part_name(const char* part) const;

  ImportContext& context_;
  const FlatNode& node_;
  AttributeReader attributes_;
  std::vector<ValueId> inputs_;
  std::vector<bool> wanted_outputs_;
};

}  // namespace pipit::internal::onnx
