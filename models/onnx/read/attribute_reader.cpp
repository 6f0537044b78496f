#include "models/onnx/read/attribute_reader.h"

#include "engine/base/error.h"
#include "models/onnx/attribute_type.h"

namespace pipit::internal::onnx {

namespace {

constexpr std::string_view kAttributeTypeNames[] = {
    "none",    "float",   "int",    "string",        "tensor",         "graph", "floats", "ints",
    "strings", "tensors", "graphs", "sparse tensor", "sparse tensors", "type",  "types"};

std::string type_name(std::int32_t type) {
  if (type < 0 || type >= static_cast<std::int32_t>(std::size(kAttributeTypeNames)))
    return fmt::format("type {}", type);
  return std::string(kAttributeTypeNames[type]);
}

}  // namespace

AttributeReader::AttributeReader(const onnx_pb::NodeProto& node) {
  for (const auto& attribute : node.attribute()) {
    if (!entries_.insert({attribute.name(), Entry{&attribute}}).second) {
      fail("attribute '{}' is given twice", attribute.name());
    }
  }
}

bool AttributeReader::has(std::string_view name) const {
  return entries_.contains(name);
}

const onnx_pb::AttributeProto* AttributeReader::find(std::string_view name, std::int32_t type) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  const onnx_pb::AttributeProto* attribute = found->second.proto;
  if (attribute->type() != type) {
    fail("attribute '{}' is of type {}, expected {}", name, type_name(attribute->type()), type_name(type));
  }
  found->second.read = true;
  return attribute;
}

std::int64_t AttributeReader::integer(std::string_view name, std::int64_t fallback) {
  const auto* attribute = find(name, kInt);
  return attribute == nullptr ? fallback : attribute->i();
}

std::int64_t AttributeReader::required_integer(std::string_view name) {
  const auto* attribute = find(name, kInt);
  if (attribute == nullptr) fail("attribute '{}' is missing", name);
  return attribute->i();
}

bool AttributeReader::flag(std::string_view name, bool fallback) {
  const std::int64_t value = integer(name, fallback ? 1 : 0);
  if (value != 0 && value != 1) fail("attribute '{}' is {}, expected 0 or 1", name, value);
  return value == 1;
}

float AttributeReader::number(std::string_view name, float fallback) {
  const auto* attribute = find(name, kFloat);
  return attribute == nullptr ? fallback : attribute->f();
}

std::string AttributeReader::text(std::string_view name, std::string_view fallback) {
  const auto* attribute = find(name, kString);
  return attribute == nullptr ? std::string(fallback) : attribute->s();
}

std::optional<std::vector<std::int64_t>> AttributeReader::integers(std::string_view name) {
  const auto* attribute = find(name, kInts);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<std::int64_t>(attribute->ints().begin(), attribute->ints().end());
}

std::optional<std::vector<float>> AttributeReader::numbers(std::string_view name) {
  const auto* attribute = find(name, kFloats);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<float>(attribute->floats().begin(), attribute->floats().end());
}

std::optional<std::vector<std::string>> AttributeReader::texts(std::string_view name) {
  const auto* attribute = find(name, kStrings);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<std::string>(attribute->strings().begin(), attribute->strings().end());
}

const onnx_pb::GraphProto* AttributeReader::graph(std::string_view name) {
  const auto* attribute = find(name, kGraph);
  return attribute == nullptr ? nullptr : &attribute->g();
}

const onnx_pb::TensorProto* AttributeReader::tensor(std::string_view name) {
  const auto* attribute = find(name, kTensor);
  return attribute == nullptr ? nullptr : &attribute->t();
}

void AttributeReader::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto found = entries_.find(name); found != entries_.end()) found->second.read = true;
  }
}

void AttributeReader::check_all_read() const {
  std::string unread;
  for (const auto& [name, entry] : entries_) {
    if (!entry.read) unread += fmt::format("{}'{}'", unread.empty() ? "" : ", ", name);
  }
  if (!unread.empty()) fail_unsupported("attribute {} is not supported", unread);
}

}  // namespace pipit::internal::onnx
