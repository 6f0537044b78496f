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

using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

std::string canonical_domain(const std::string& domain) {
  return is_default_domain(domain) ? std::string() : domain;
}

class Inliner {
 public:
  explicit Inliner(const onnx_pb::ModelProto& model) {
    for (const FunctionProto& function : model.functions()) {
      FunctionKey key(canonical_domain(function.domain()), function.name(), function.overload());
      if (!functions_.emplace(std::move(key), &function).second) {
        fail("function '{}' of domain '{}' is defined twice", function.name(), function.domain());
      }
    }
  }

  void add(const NodeProto& node, std::int64_t opset, int depth) {
    const auto found = functions_.find({canonical_domain(node.domain()), node.op_type(), node.overload()});
    if (found == functions_.end()) {
      push(node, opset);
    } else {
      expand(node, *found->second, opset, depth);
    }
  }

  FlatNodes take() { return std::move(result_); }

 private:
  void expand(const NodeProto& call, const FunctionProto& function, std::int64_t opset, int depth) {
    if (depth >= kMaxDepth) {
      fail("function '{}' nests deeper than {}: does it call itself?", function.name(), kMaxDepth);
    }
    check_call(call, function);
    const std::int64_t body_opset = default_opset(function.opset_import(), opset);
    const std::string prefix = unique_prefix(call);
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
        node.name().empty() ? fmt::format("{}_{}", node.op_type(), result_.nodes.size()) : node.name();
    std::string name = base;
    for (int& count = names_[base]; !used_names_.insert(name).second;) {
      name = fmt::format("{}_{}", base, ++count);
    }
    result_.nodes.push_back({&node, opset, std::move(name)});
  }

  NodeProto& copy_of(const NodeProto& node) {
    bytes_ += node.ByteSizeLong();
    if (bytes_ > kMaxInlinedBytes || result_.inlined.size() >= kMaxInlinedNodes) {
      fail("inlining functions adds more than {} nodes or {} bytes", kMaxInlinedNodes, kMaxInlinedBytes);
    }
    return result_.inlined.emplace_back(node);
  }

  std::string unique_prefix(const NodeProto& call) {
    const std::string base = call.name().empty() ? call.op_type() : call.name();
    int& count = prefixes_[base];
    ++count;
    return count == 1 ? base + "::" : fmt::format("{}_{}::", base, count);
  }

  std::map<FunctionKey, const FunctionProto*> functions_;
  std::unordered_map<std::string, int> prefixes_;
  std::unordered_map<std::string, int> names_;  // how often a name was taken already
  std::unordered_set<std::string> used_names_;
  FlatNodes result_;
  std::size_t bytes_ = 0;
};

}  // namespace

FlatNodes inline_functions(const onnx_pb::ModelProto& model, std::int64_t opset) {
  Inliner inliner(model);
  for (const NodeProto& node : model.graph().node()) inliner.add(node, opset, 0);
  return inliner.take();
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
