// Writes small ONNX models for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "models/onnx/read/reader.h"
#include "onnx.pb.h"

namespace pipit::internal::test {

// Attributes that are integers.
inline constexpr std::int64_t kZero = 0;
inline constexpr std::int64_t kOne = 1;

using Dims = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

/// TensorProto.DataType of the element types that tests write.
template <typename T>
constexpr int onnx_type() {
  if constexpr (std::is_same_v<T, float>) return 1;
  if constexpr (std::is_same_v<T, std::uint8_t>) return 2;
  if constexpr (std::is_same_v<T, std::int8_t>) return 3;
  if constexpr (std::is_same_v<T, std::int32_t>) return 6;
  if constexpr (std::is_same_v<T, std::int64_t>) return 7;
  if constexpr (std::is_same_v<T, double>) return 11;
}

template <typename T>
onnx_pb::TensorProto tensor_proto(const std::string& name, const Dims& dims, const std::vector<T>& values) {
  onnx_pb::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(onnx_type<T>());
  proto.mutable_dims()->Add(dims.begin(), dims.end());
  proto.set_raw_data(values.data(), values.size() * sizeof(T));
  return proto;
}

struct Attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, Dims, std::vector<float>, onnx_pb::TensorProto> value;
};

inline void set_attribute(onnx_pb::AttributeProto& proto, const Attribute& attribute) {
  proto.set_name(attribute.name);
  if (const auto* i = std::get_if<std::int64_t>(&attribute.value)) {
    proto.set_type(2);
    proto.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&attribute.value)) {
    proto.set_type(1);
    proto.set_f(*f);
  } else if (const auto* s = std::get_if<std::string>(&attribute.value)) {
    proto.set_type(3);
    proto.set_s(*s);
  } else if (const auto* ints = std::get_if<Dims>(&attribute.value)) {
    proto.set_type(7);
    proto.mutable_ints()->Add(ints->begin(), ints->end());
  } else if (const auto* floats = std::get_if<std::vector<float>>(&attribute.value)) {
    proto.set_type(6);
    proto.mutable_floats()->Add(floats->begin(), floats->end());
  } else {
    proto.set_type(4);
    *proto.mutable_t() = std::get<onnx_pb::TensorProto>(attribute.value);
  }
}

inline void set_node(onnx_pb::NodeProto& node, const std::string& op, const Names& inputs,
                     const Names& outputs, const std::vector<Attribute>& attributes = {},
                     const std::string& domain = {}) {
  node.set_op_type(op);
  node.set_name("the_" + op);
  node.set_domain(domain);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
  for (const Attribute& attribute : attributes) set_attribute(*node.add_attribute(), attribute);
}

class OnnxWriter {
 public:
  explicit OnnxWriter(std::int64_t opset = 17) {
    proto_.set_ir_version(8);
    proto_.add_opset_import()->set_version(opset);
  }

  onnx_pb::ModelProto& proto() { return proto_; }
  onnx_pb::GraphProto& graph() { return *proto_.mutable_graph(); }

  OnnxWriter& input(const std::string& name, const Dims& dims, int type = onnx_type<float>()) {
    auto& value = *graph().add_input();
    value.set_name(name);
    auto& tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const std::int64_t dim : dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
    return *this;
  }
  /// Makes a dimension of the last input symbolic.
  OnnxWriter& symbol(int dim, const std::string& name) {
    auto& last = *graph().mutable_input(graph().input_size() - 1);
    last.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(dim)->set_dim_param(name);
    return *this;
  }
  template <typename T>
  OnnxWriter& constant(const std::string& name, const Dims& dims, const std::vector<T>& values) {
    *graph().add_initializer() = tensor_proto(name, dims, values);
    return *this;
  }
  OnnxWriter& integers(const std::string& name, const Dims& values) {
    return constant<std::int64_t>(name, {static_cast<std::int64_t>(values.size())}, values);
  }
  OnnxWriter& node(const std::string& op, const Names& inputs, const Names& outputs,
                   const std::vector<Attribute>& attributes = {}, const std::string& domain = {}) {
    set_node(*graph().add_node(), op, inputs, outputs, attributes, domain);
    return *this;
  }
  OnnxWriter& output(const std::string& name) {
    graph().add_output()->set_name(name);
    return *this;
  }

  std::string bytes() const { return proto_.SerializeAsString(); }
  OnnxModel read(const OnnxOptions& options = {}) const {
    const std::string data = bytes();
    return parse_onnx(std::as_bytes(std::span(data)), {}, options);
  }
  /// The message that reading throws as E; empty when it does not throw.
  template <typename E>
  std::string failure(const OnnxOptions& options = {}) const {
    try {
      read(options);
    } catch (const E& e) {
      return e.what();
    }
    return {};
  }

 private:
  onnx_pb::ModelProto proto_;
};

/// A model of one node with one output 'y'.
inline OnnxWriter one_node(std::int64_t opset, const std::string& op, const Names& inputs,
                           const std::vector<Attribute>& attributes = {}) {
  OnnxWriter model(opset);
  model.node(op, inputs, {"y"}, attributes).output("y");
  return model;
}

}  // namespace pipit::internal::test
