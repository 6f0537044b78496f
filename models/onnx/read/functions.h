// Model-local functions: replaces every call by the nodes of the function's body.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// A node to import, with the version of the default operator set that it was written for.
struct FlatNode {
  const onnx_pb::NodeProto* proto;
  std::int64_t opset;
  std::string name;  ///< never empty ("Conv_3" where the file gives none), unique
};

/// Nodes without calls of local functions. Refers to the model.
struct FlatNodes {
  std::vector<FlatNode> nodes;
  std::deque<onnx_pb::NodeProto> inlined;  ///< owns the nodes that were copied out of functions
};

/// The nodes of the model's graph with calls of local functions inlined, innermost names prefixed with the
/// name of the call. Throws Error on functions that nest too deep (or call themselves), that grow the model
/// beyond a fixed bound, or that are called with attributes and inputs they do not declare.
FlatNodes inline_functions(const onnx_pb::ModelProto& model, std::int64_t opset);

/// True for the two spellings of the default operator domain.
inline bool is_default_domain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}

/// "Conv", or "com.example::Conv" outside the default domain.
std::string qualified_operator(const onnx_pb::NodeProto& node);

/// Version of the default domain in an opset list. `absent` where it is not listed; throws Error when listed
/// with two versions.
std::int64_t default_opset(const google::protobuf::RepeatedPtrField<onnx_pb::OperatorSetIdProto>& imports,
                           std::int64_t absent);

}  // namespace pipit::internal::onnx
