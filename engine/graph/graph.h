// Graph: values and nodes in topological order, validated on construction, immutable afterwards.
// Rewrites are functions Graph -> Graph.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/layer.h"

namespace pipit::internal {

using ValueId = std::int32_t;
/// Stands for an optional input that is not given.
inline constexpr ValueId kNoValue = -1;

/// Where `id`, which is not kNoValue, stands in Graph::values() and in lists with one entry per value.
constexpr std::size_t index(ValueId id) {
  return static_cast<std::size_t>(id);
}

/// A named tensor: a graph input, a constant, or what one node computes.
struct Value {
  std::string name;
  TensorDesc desc;
  std::shared_ptr<const Tensor> constant;  ///< set for constants only
  bool released = false;                   ///< a constant whose memory was given back

  bool is_constant() const { return constant != nullptr || released; }
};

struct Node {
  std::string name;
  LayerPtr layer;
  std::vector<ValueId> inputs;  ///< kNoValue where an optional input is absent
  std::vector<ValueId> outputs;
};

class Graph {
 public:
  Graph() = default;

  const std::vector<Value>& values() const { return values_; }
  const Value& value(ValueId id) const { return values_[index(id)]; }
  /// In topological order: every input of a node is a graph input, a constant, or an earlier node's output.
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  /// One per output. Rewrites keep them, whichever value an output comes to be.
  const std::vector<std::string>& output_names() const { return output_names_; }

  /// Descs of a node's operands; null for an absent input.
  std::vector<const TensorDesc*> input_descs(const Node& node) const;
  std::vector<TensorDesc> output_descs(const Node& node) const;
  /// How many node inputs and graph outputs read each value.
  std::vector<int> use_counts() const;
  /// Forgets the memory of a constant that nothing reads any more.
  void release_constant(ValueId id);
  /// The same graph with every constant released: shapes and attributes, and nothing of the model's size.
  Graph without_constants() const;
  /// The same graph where the values marked in `by_sample` (one mark per value; see find_samples) have `samples`
  /// entries of dimension 0, and the layers that read them know (Layer::for_samples).
  Graph with_samples(const std::vector<bool>& by_sample, std::int64_t samples) const;

 private:
  friend class GraphBuilder;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::vector<std::string> output_names_;
};

/// Makes a Graph. Nodes are added in topological order; add() infers the output descs.
class GraphBuilder {
 public:
  ValueId add_input(std::string name, const TensorDesc& desc);
  ValueId add_constant(std::string name, std::shared_ptr<const Tensor> tensor);
  ValueId add_constant(std::string name, Tensor tensor) {
    return add_constant(std::move(name), std::make_shared<const Tensor>(std::move(tensor)));
  }
  /// Adds a node and returns its outputs, named as given (or after the node where names run out).
  /// Throws Error, prefixed with the node's name and type, when shape inference refuses the inputs.
  std::vector<ValueId> add(std::string name, LayerPtr layer, std::vector<ValueId> inputs,
                           std::vector<std::string> output_names = {});
  /// add() for a layer with one output.
  ValueId add1(std::string name, LayerPtr layer, std::vector<ValueId> inputs, std::string output_name = {}) {
    return add(std::move(name), std::move(layer), std::move(inputs), {std::move(output_name)}).at(0);
  }
  /// The output is named after the value unless it is given another name.
  void mark_output(ValueId id, std::string name = {});
  /// The reference stays valid until build(), whatever is added meanwhile.
  const Value& value(ValueId id) const { return values_.at(index(id)); }
  /// Replaces the layout that inference gave to a value (used by the layout pass only).
  void set_layout(ValueId id, Layout layout);
  /// Replaces the element type (used by the precision pass only, which runs after every inference).
  void set_dtype(ValueId id, DType dtype);
  void rename(ValueId id, std::string name);

  /// Validates (unique producers, topological order, at least one output, constants match their descs) and
  /// drops nodes and constants that no output needs. The builder is empty afterwards.
  Graph build();

 private:
  ValueId add_value(Value value);

  std::deque<Value> values_;  // elements of a deque stay where they are when it grows
  Graph graph_;               // everything but the values
};

}  // namespace pipit::internal
