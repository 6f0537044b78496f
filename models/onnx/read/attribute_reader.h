// Typed access to the attributes of a node, which remembers which of them were read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// Every getter marks its attribute as read and throws Error when the file gives it another type. Messages do
/// not name the node. Refers to the NodeProto.
class AttributeReader {
 public:
  /// Throws Error when an attribute is given twice.
  explicit AttributeReader(const onnx_pb::NodeProto& node);

  bool has(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  /// Throws Error when the attribute is absent.
  std::int64_t required_integer(std::string_view name);
  /// An integer that must be 0 or 1.
  bool flag(std::string_view name, bool fallback);
  float number(std::string_view name, float fallback);
  std::string text(std::string_view name, std::string_view fallback);
  std::optional<std::vector<std::int64_t>> integers(std::string_view name);
  std::optional<std::vector<float>> numbers(std::string_view name);
  std::optional<std::vector<std::string>> texts(std::string_view name);
  /// Null when absent.
  const onnx_pb::TensorProto* tensor(std::string_view name);
  /// Null when absent.
  const onnx_pb::GraphProto* graph(std::string_view name);
  /// Marks attributes that do not change the result of inference as read.
  void ignore(std::initializer_list<std::string_view> names);

  /// Throws UnsupportedError listing the attributes that were never read: they might change the result.
  void check_all_read() const;

 private:
  struct Entry {
    const onnx_pb::AttributeProto* proto;
    bool read = false;
  };
  // Null when absent; type is an AttributeProto.AttributeType number.
  const onnx_pb::AttributeProto* find(std::string_view name, std::int32_t type);

  std::map<std::string_view, Entry> entries_;
};

}  // namespace pipit::internal::onnx
