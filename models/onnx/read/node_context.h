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

/// ONNX's sequences, which are no values of the graph: only inputs and outputs of converters have their ids.
class Sequences {
 public:
  /// Throws UnsupportedError where it is too long, or all of the model's together are.
  ValueId add(std::vector<ValueId> values);
  static bool contains(ValueId id) { return id <= kFirst; }
  const std::vector<ValueId>& at(ValueId id) const {
    return lists_.at(static_cast<std::size_t>(kFirst - id));
  }

 private:
  static constexpr ValueId kFirst = -3;  // above it are kNoValue and what the importer does not know
  std::vector<std::vector<ValueId>> lists_;
  std::size_t values_ = 0;
};

/// What all nodes of one model share.
struct ImportContext {
  const OnnxOptions& options;
  Emitter emitter;
  ExternalData external;
  /// Graph inputs, and the constants that options.bind_input gave for them.
  std::unordered_map<ValueId, std::shared_ptr<const Tensor>> inputs;
  /// ONNX's data types of integers in 16, 4 and 2 bits, which lie in wider ones here (container_of()).
  std::unordered_map<ValueId, std::int32_t> narrow;
  /// What QuantizeLinear writes into such a container, before it becomes an integer (f32).
  std::unordered_map<ValueId, ValueId> reals;
  bool narrow_range = false;
  Sequences sequences;

  /// Remembers the type of a value in the file if it is a narrow one.
  void note_type(ValueId id, std::int32_t data_type);
  /// The data type of a value that lies in a container; 0 of others.
  std::int32_t narrow_type(ValueId id) const;
  /// The type of the results of an operator that moves elements, if its operands are narrow; else 0. Throws
  /// UnsupportedError where an operator would compute in a container as if it was the type.
  std::int32_t narrow_operand(const std::string& op, const std::vector<ValueId>& operands) const;
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

  /// ImportContext::narrow_type of an input.
  std::int32_t narrow_type(int index) const { return context_.narrow_type(input(index)); }
  ImportContext& shared() { return context_; }
  /// The values of an input that is a sequence; throws Error where it is a tensor.
  const std::vector<ValueId>& sequence(int index) const;
  const std::string& value_name(ValueId id) const { return context_.emitter.builder().value(id).name; }

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
  /// The same for a tensor that the converter computed: what later nodes compute from it counts as well.
  ValueId add_computed(Tensor tensor, const char* part = nullptr);
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
