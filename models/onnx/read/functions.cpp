#include "models/onnx/read/functions.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"

namespace pipit::internal::onnx {

namespace {

// Bounds on what nested functions may grow to; real exporters stay far below.
constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxInlinedBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxInlinedNodes = 100'000;

using onnx_pb::AttributeProto;
using onnx_pb::FunctionProto;
using onnx_pb::NodeProto;

using onnx_pb::GraphProto;

using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

std::string canonical_domain(const std::string& domain) {
  return is_default_domain(domain) ? std::string() : domain;
}

std::set<std::string> defined_names(const GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const NodeProto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

using Rename = std::function<void(std::string&)>;

// Renames what the graphs in the node's attributes read from outside of themselves.
void rename_captures(NodeProto& node, const Rename& rename) {
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (!attribute.has_g()) continue;
    GraphProto& graph = *attribute.mutable_g();
    const std::set<std::string> own = defined_names(graph);
    const auto rename_outer = [&](std::string& name) {
      if (!name.empty() && !own.contains(name)) rename(name);
    };
    for (NodeProto& inner : *graph.mutable_node()) {
      std::for_each(inner.mutable_input()->begin(), inner.mutable_input()->end(), rename_outer);
      rename_captures(inner, rename_outer);
    }
    for (auto& output : *graph.mutable_output()) rename_outer(*output.mutable_name());
  }
}

}  // namespace

class FlatNodes::Inliner {
 public:
  Inliner(const onnx_pb::ModelProto& model, std::int64_t opset) {
    for (const FunctionProto& function : model.functions()) {
      FunctionKey key(canonical_domain(function.domain()), function.name(), function.overload());
      if (!functions_.emplace(std::move(key), &function).second) {
        fail("function '{}' of domain '{}' is defined twice", function.name(), function.domain());
      }
    }
    for (const NodeProto& node : model.graph().node()) add(node, opset, 0);
  }

  const std::vector<FlatNode>& nodes() const { return nodes_; }

  InlinedGraph add_branch(std::size_t parent, const GraphProto& graph) {
    const std::int64_t opset = nodes_.at(parent).opset;
    const std::string prefix = unique_prefix(nodes_[parent].name);
    const std::set<std::string> own = defined_names(graph);
    const auto rename = [&](std::string& name) {
      if (!name.empty() && own.contains(name)) name = prefix + name;
    };
    InlinedGraph result;
    for (const auto& tensor : graph.initializer())
      result.constants.emplace_back(prefix + tensor.name(), &tensor);
    for (const NodeProto& inner : graph.node()) {
      NodeProto& copy = copy_of(inner);
      copy.set_name(prefix + (inner.name().empty() ? inner.op_type() : inner.name()));
      std::for_each(copy.mutable_input()->begin(), copy.mutable_input()->end(), rename);
      std::for_each(copy.mutable_output()->begin(), copy.mutable_output()->end(), rename);
      rename_captures(copy, rename);
      add(copy, opset, 0);
    }
    for (const auto& output : graph.output()) {
      result.outputs.push_back(output.name());
      rename(result.outputs.back());
    }
    return result;
  }

 private:
  void add(const NodeProto& node, std::int64_t opset, int depth) {
    const auto found = functions_.find({canonical_domain(node.domain()), node.op_type(), node.overload()});
    if (found == functions_.end()) {
      push(node, opset);
    } else {
      expand(node, *found->second, opset, depth);
    }
  }

  void expand(const NodeProto& call, const FunctionProto& function, std::int64_t opset, int depth) {
    if (depth >= kMaxDepth) {
      fail("function '{}' nests deeper than {}: does it call itself?", function.name(), kMaxDepth);
    }
    check_call(call, function);
    const std::int64_t body_opset = default_opset(function.opset_import(), opset);
    const std::string prefix = unique_prefix(call.name().empty() ? call.op_type() : call.name());
    std::unordered_map<std::string, std::string> renamed;
    for (int i = 0; i < function.input_size(); ++i) {
      renamed[function.input(i)] = i < call.input_size() ? call.input(i) : std::string();
    }
    for (int i = 0; i < function.output_size() && i < call.output_size(); ++i) {
      if (call.output(i).empty()) continue;
      const auto [entry, is_new] = renamed.emplace(function.output(i), call.output(i));
      // An output that is also an input, or twice an output, has its name already.
      if (!is_new) add_identity(entry->second, call.output(i), prefix, body_opset);
    }
    const auto rename = [&](std::string& name) {
      if (name.empty()) return;
      const auto [entry, is_new] = renamed.try_emplace(name);
      if (is_new) entry->second = prefix + name;
      name = entry->second;
    };
    for (const NodeProto& inner : function.node()) {
      NodeProto& copy = copy_of(inner);
      copy.set_name(prefix + (inner.name().empty() ? inner.op_type() : inner.name()));
      std::for_each(copy.mutable_input()->begin(), copy.mutable_input()->end(), rename);
      std::for_each(copy.mutable_output()->begin(), copy.mutable_output()->end(), rename);
      rename_captures(copy, rename);
      bind_attributes(copy, call, function);
      add(copy, body_opset, depth + 1);
    }
  }

  static void check_call(const NodeProto& call, const FunctionProto& function) {
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
      fail("node '{}' calls function '{}' with {} inputs and {} outputs; it has {} and {}", call.name(),
           function.name(), call.input_size(), call.output_size(), function.input_size(),
           function.output_size());
    }
    std::set<std::string_view> declared(function.attribute().begin(), function.attribute().end());
    for (const AttributeProto& attribute : function.attribute_proto()) declared.insert(attribute.name());
    for (const AttributeProto& attribute : call.attribute()) {
      if (!declared.contains(attribute.name())) {
        fail("node '{}' calls function '{}' with attribute '{}', which it does not declare", call.name(),
             function.name(), attribute.name());
      }
    }
  }

  // Replaces references to the function's attributes by the call's values or the defaults, and drops those
  // that have neither: the operator's own default holds then.
  static void bind_attributes(NodeProto& node, const NodeProto& call, const FunctionProto& function) {
    const auto named = [](const auto& list, const std::string& name) {
      return std::find_if(list.begin(), list.end(), [&](const auto& a) { return a.name() == name; });
    };
    for (int i = node.attribute_size(); i-- > 0;) {
      AttributeProto& attribute = *node.mutable_attribute(i);
      if (attribute.has_g()) {
        for (NodeProto& inner : *attribute.mutable_g()->mutable_node())
          bind_attributes(inner, call, function);
      }
      if (!attribute.has_ref_attr_name()) continue;
      const std::string name = attribute.name();
      const std::string source = attribute.ref_attr_name();
      const auto given = named(call.attribute(), source);
      const auto fallback = named(function.attribute_proto(), source);
      if (given != call.attribute().end()) {
        attribute = *given;
      } else if (fallback != function.attribute_proto().end()) {
        attribute = *fallback;
      } else {
        node.mutable_attribute()->DeleteSubrange(i, 1);
        continue;
      }
      attribute.set_name(name);
    }
  }

  void add_identity(const std::string& from, const std::string& to, const std::string& prefix,
                    std::int64_t opset) {
    NodeProto identity;
    identity.set_op_type("Identity");
    identity.set_name(prefix + to);
    identity.add_input(from);
    identity.add_output(to);
    push(copy_of(identity), opset);
  }

  void push(const NodeProto& node, std::int64_t opset) {
    const std::string base =
        node.name().empty() ? fmt::format("{}_{}", node.op_type(), nodes_.size()) : node.name();
    std::string name = base;
    for (int& count = names_[base]; !used_names_.insert(name).second;) {
      name = fmt::format("{}_{}", base, ++count);
    }
    nodes_.push_back({&node, opset, std::move(name)});
  }

  NodeProto& copy_of(const NodeProto& node) {
    bytes_ += node.ByteSizeLong();
    if (bytes_ > kMaxInlinedBytes || inlined_.size() >= kMaxInlinedNodes) {
      fail("inlining functions adds more than {} nodes or {} bytes", kMaxInlinedNodes, kMaxInlinedBytes);
    }
    return inlined_.emplace_back(node);
  }

  std::string unique_prefix(const std::string& base) {
    int& count = prefixes_[base];
    ++count;
    return count == 1 ? base + "::" : fmt::format("{}_{}::", base, count);
  }

  std::map<FunctionKey, const FunctionProto*> functions_;
  std::unordered_map<std::string, int> prefixes_;
  std::unordered_map<std::string, int> names_;  // how often a name was taken already
  std::unordered_set<std::string> used_names_;
  std::vector<FlatNode> nodes_;
  std::deque<NodeProto> inlined_;  // owns the nodes that were copied out of functions and branches
  std::size_t bytes_ = 0;
};

FlatNodes::FlatNodes(const onnx_pb::ModelProto& model, std::int64_t opset)
    : inliner_(std::make_unique<Inliner>(model, opset)) {}
FlatNodes::~FlatNodes() = default;
FlatNodes::FlatNodes(FlatNodes&&) noexcept = default;
FlatNodes& FlatNodes::operator=(FlatNodes&&) noexcept = default;

const std::vector<FlatNode>& FlatNodes::nodes() const {
  return inliner_->nodes();
}

InlinedGraph FlatNodes::add_branch(std::size_t parent, const GraphProto& graph) {
  return inliner_->add_branch(parent, graph);
}

void for_each_capture(const GraphProto& graph, const std::function<void(const std::string&)>& body) {
  const std::set<std::string> own = defined_names(graph);
  const auto outer = [&](const std::string& name) {
    if (!name.empty() && !own.contains(name)) body(name);
  };
  for (const NodeProto& node : graph.node()) {
    std::for_each(node.input().begin(), node.input().end(), outer);
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) for_each_capture(attribute.g(), outer);
    }
  }
  for (const auto& output : graph.output()) outer(output.name());
}

std::string qualified_operator(const NodeProto& node) {
  return is_default_domain(node.domain()) ? node.op_type() : node.domain() + "::" + node.op_type();
}

std::int64_t default_opset(const google::protobuf::RepeatedPtrField<onnx_pb::OperatorSetIdProto>& imports,
                           std::int64_t absent) {
  std::int64_t opset = absent;
  bool listed = false;
  for (const auto& import : imports) {
    if (!is_default_domain(import.domain())) continue;
    if (listed && import.version() != opset) {
      fail("the default operator set is imported as version {} and {}", opset, import.version());
    }
    opset = import.version();
    listed = true;
  }
  return opset;
}

}  // namespace pipit::internal::onnx
