#include "layers/passes/rewriter.h"

namespace pipit::internal {

Rewriter::Rewriter(const Graph& source)
    : source_(source),
      mapped_(source.values().size(), kNoValue),
      uses_(source.use_counts()),
      producers_(source.values().size(), -1),
      consumers_(source.values().size(), -1) {
  for (std::size_t n = 0; n < source.nodes().size(); ++n) {
    for (const ValueId id : source.nodes()[n].outputs) producers_[index(id)] = static_cast<int>(n);
    for (const ValueId id : source.nodes()[n].inputs) {
      if (id != kNoValue) consumers_[index(id)] = static_cast<int>(n);
    }
  }
  for (const ValueId id : source.inputs()) {
    mapped_[index(id)] = builder_.add_input(source.value(id).name, source.value(id).desc);
  }
}

int Rewriter::only_consumer(ValueId id) const {
  return uses(id) == 1 ? consumers_[index(id)] : -1;
}

ValueId Rewriter::map(ValueId id) {
  if (id == kNoValue) return kNoValue;
  ValueId& mapped = mapped_[index(id)];
  if (mapped == kNoValue) {
    const Value& value = source_.value(id);
    if (!value.constant) fail("rewrite: value '{}' is read before it is made", value.name);
    mapped = builder_.add_constant(value.name, value.constant);
  }
  return mapped;
}

void Rewriter::copy(const Node& node) {
  std::vector<ValueId> inputs;
  for (const ValueId id : node.inputs) inputs.push_back(map(id));
  emit(node.name, node.layer, std::move(inputs), node.outputs);
}

std::vector<ValueId> Rewriter::emit(const std::string& name, LayerPtr layer, std::vector<ValueId> inputs,
                                    const std::vector<ValueId>& replaced) {
  std::vector<std::string> names;
  for (const ValueId id : replaced) names.push_back(source_.value(id).name);
  std::vector<ValueId> outputs = builder_.add(name, std::move(layer), std::move(inputs), std::move(names));
  if (outputs.size() < replaced.size()) fail("rewrite: node '{}' lost an output", name);
  for (std::size_t i = 0; i < replaced.size(); ++i) forward(replaced[i], outputs[i]);
  return outputs;
}

ValueId Rewriter::constant(std::string name, Tensor tensor) {
  return builder_.add_constant(std::move(name), std::move(tensor));
}

void Rewriter::forward(ValueId id, ValueId replacement) {
  mapped_[index(id)] = replacement;
}

Graph Rewriter::finish() {
  for (std::size_t i = 0; i < source_.outputs().size(); ++i) {
    builder_.mark_output(map(source_.outputs()[i]), source_.output_names()[i]);
  }
  return builder_.build();
}

}  // namespace pipit::internal
