// Model-local functions and branches of If: replaces every call by the nodes of the body.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx.pb.h"

namespace pipit::internal::onnx {

/// A node to import, with the version of the default operator set that it was written for.
struct FlatNode {
  const onnx_pb::NodeProto* proto;
  std::int64_t opset;
  std::string name;  ///< never empty ("Conv_3" where the file gives none), unique
};

/// A graph that became part of the list of nodes, with the names that its values have there.
struct InlinedGraph {
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, const onnx_pb::TensorProto*>> constants;
};

/// The nodes of a model's graph with calls of local functions inlined, innermost names prefixed with the name of the
/// call. Throws Error on functions that nest too deep (or call themselves), that grow the model beyond a fixed bound,
/// or that are called with attributes and inputs they do not declare. Refers to the model.
class FlatNodes {
 public:
  FlatNodes(const onnx_pb::ModelProto& model, std::int64_t opset);
  ~FlatNodes();
  FlatNodes(FlatNodes&&) noexcept;
  FlatNodes& operator=(FlatNodes&&) noexcept;

  /// Grows by add_branch(); indices stay.
  const std::vector<FlatNode>& nodes() const;
  /// Adds the nodes of a graph that is an attribute of node `parent`. What it defines gets names of its own; other
  /// names are those of the values around it.
  InlinedGraph add_branch(std::size_t parent, const onnx_pb::GraphProto& graph);

 private:
  class Inliner;
  std::unique_ptr<Inliner> inliner_;
};

/// Calls body(name) for every value outside of `graph`, and of the graphs in it, that it reads; names may come again.
void for_each_capture(const onnx_pb::GraphProto& graph, const std::function<void(const std::string&)>& body);

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
