#include "engine/graph/graph.h"

#include <algorithm>
#include <set>

namespace pipit::internal {

namespace {

template <typename Values>
std::vector<const TensorDesc*> descs_of(const std::vector<ValueId>& ids, const Values& values) {
  std::vector<const TensorDesc*> descs;
  descs.reserve(ids.size());
  for (const ValueId id : ids) {
    descs.push_back(id == kNoValue ? nullptr : &values[static_cast<std::size_t>(id)].desc);
  }
  return descs;
}

}  // namespace

std::vector<const TensorDesc*> Graph::input_descs(const Node& node) const {
  return descs_of(node.inputs, values_);
}

std::vector<TensorDesc> Graph::output_descs(const Node& node) const {
  std::vector<TensorDesc> descs;
  descs.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) descs.push_back(value(id).desc);
  return descs;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> uses(values_.size(), 0);
  for (const Node& node : nodes_) {
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) ++uses[static_cast<std::size_t>(id)];
    }
  }
  for (const ValueId id : outputs_) ++uses[static_cast<std::size_t>(id)];
  return uses;
}

void Graph::release_constant(ValueId id) {
  Value& value = values_[static_cast<std::size_t>(id)];
  value.released = value.is_constant();
  value.constant.reset();
}

Graph Graph::without_constants() const {
  Graph result = *this;
  for (std::size_t v = 0; v < values_.size(); ++v) result.release_constant(static_cast<ValueId>(v));
  return result;
}

Graph Graph::with_samples(const std::vector<bool>& by_sample, std::int64_t samples) const {
  Graph result = *this;
  for (std::size_t v = 0; v < values_.size(); ++v) {
    TensorDesc& desc = result.values_[v].desc;
    if (by_sample[v]) desc.shape = desc.shape.with(0, samples);
  }
  for (Node& node : result.nodes_) {
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNoValue && by_sample[static_cast<std::size_t>(id)];
    });
    if (!reads) continue;
    if (LayerPtr layer = node.layer->for_samples(samples)) node.layer = std::move(layer);
  }
  return result;
}

ValueId GraphBuilder::add_value(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId GraphBuilder::add_input(std::string name, const TensorDesc& desc) {
  return graph_.inputs_.emplace_back(add_value({std::move(name), desc, nullptr, false}));
}

ValueId GraphBuilder::add_constant(std::string name, std::shared_ptr<const Tensor> tensor) {
  if (tensor == nullptr) fail("constant '{}' has no tensor", name);
  const TensorDesc desc = tensor->desc();
  return add_value({std::move(name), desc, std::move(tensor), false});
}

std::vector<ValueId> GraphBuilder::add(std::string name, LayerPtr layer, std::vector<ValueId> inputs,
                                       std::vector<std::string> output_names) {
  if (layer == nullptr) fail("node '{}' has no layer", name);
  Node node{std::move(name), std::move(layer), std::move(inputs), {}};
  for (const ValueId id : node.inputs) {
    if (id < kNoValue || id >= static_cast<ValueId>(values_.size())) {
      fail("node '{}' ({}): input value {} does not exist yet", node.name, node.layer->type(), id);
    }
  }
  std::vector<TensorDesc> descs;
  try {
    descs = node.layer->infer(descs_of(node.inputs, values_));
  } catch (const UnsupportedError& e) {
    fail_unsupported("node '{}' ({}): {}", node.name, node.layer->type(), e.what());
  } catch (const Error& e) {
    fail("node '{}' ({}): {}", node.name, node.layer->type(), e.what());
  }
  for (std::size_t i = 0; i < descs.size(); ++i) {
    std::string output_name = i < output_names.size() ? std::move(output_names[i]) : std::string{};
    if (output_name.empty()) output_name = i == 0 ? node.name : fmt::format("{}:{}", node.name, i);
    node.outputs.push_back(add_value({std::move(output_name), descs[i], nullptr, false}));
  }
  graph_.nodes_.push_back(std::move(node));
  return graph_.nodes_.back().outputs;
}

void GraphBuilder::mark_output(ValueId id, std::string name) {
  if (id < 0 || id >= static_cast<ValueId>(values_.size())) fail("graph output {} does not exist", id);
  graph_.outputs_.push_back(id);
  graph_.output_names_.push_back(name.empty() ? value(id).name : std::move(name));
}

void GraphBuilder::set_layout(ValueId id, Layout layout) {
  values_.at(static_cast<std::size_t>(id)).desc.layout = layout;
}

void GraphBuilder::set_dtype(ValueId id, DType dtype) {
  values_.at(static_cast<std::size_t>(id)).desc.dtype = dtype;
}

void GraphBuilder::rename(ValueId id, std::string name) {
  values_.at(static_cast<std::size_t>(id)).name = std::move(name);
}

namespace {

// Keeps the graph inputs, and what some output needs. Ids are renumbered in their old order.
struct Compaction {
  std::vector<bool> live_node;
  std::vector<ValueId> new_id;
};

Compaction find_live(const Graph& graph, std::size_t values) {
  std::vector<bool> live(values, false);
  for (const ValueId id : graph.inputs()) live[static_cast<std::size_t>(id)] = true;
  for (const ValueId id : graph.outputs()) live[static_cast<std::size_t>(id)] = true;
  Compaction result;
  result.live_node.assign(graph.nodes().size(), false);
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    for (const ValueId id : node.outputs) {
      if (live[static_cast<std::size_t>(id)]) result.live_node[n] = true;
    }
    if (!result.live_node[n]) continue;
    for (const ValueId id : node.outputs) live[static_cast<std::size_t>(id)] = true;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) live[static_cast<std::size_t>(id)] = true;
    }
  }
  ValueId next = 0;
  for (const bool is_live : live) result.new_id.push_back(is_live ? next++ : kNoValue);
  return result;
}

}  // namespace

Graph GraphBuilder::build() {
  if (graph_.outputs_.empty()) fail("the graph has no output");
  for (const Value& value : values_) {
    if (value.constant && !(value.constant->desc() == value.desc)) {
      fail("constant '{}' is {} but its value says {}", value.name, value.constant->desc().str(),
           value.desc.str());
    }
  }
  // add() only accepts existing values, so nodes are in topological order and every value has one producer.
  const Compaction keep = find_live(graph_, values_.size());
  const auto renumber = [&](ValueId id) {
    return id == kNoValue ? kNoValue : keep.new_id[static_cast<std::size_t>(id)];
  };
  Graph result;
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (keep.new_id[v] != kNoValue) result.values_.push_back(std::move(values_[v]));
  }
  for (std::size_t n = 0; n < graph_.nodes_.size(); ++n) {
    if (!keep.live_node[n]) continue;
    Node& node = graph_.nodes_[n];
    for (ValueId& id : node.inputs) id = renumber(id);
    for (ValueId& id : node.outputs) id = renumber(id);
    result.nodes_.push_back(std::move(node));
  }
  for (const ValueId id : graph_.inputs_) result.inputs_.push_back(renumber(id));
  for (const ValueId id : graph_.outputs_) result.outputs_.push_back(renumber(id));
  result.output_names_ = std::move(graph_.output_names_);
  values_.clear();
  graph_ = Graph{};
  return result;
}

}  // namespace pipit::internal
