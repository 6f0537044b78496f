#include "layers/passes/byte_image.h"

#include <algorithm>

namespace pipit::internal {

bool is_user_image(const Graph& graph, int producer, ValueId id) {
  if (producer < 0) return !graph.value(id).is_constant();
  return layer_if<NormalizeImage>(graph.nodes()[static_cast<std::size_t>(producer)]) != nullptr;
}

Graph with_byte_image(const Graph& graph, const NormalizeImageAttributes& attributes, Tensor table) {
  if (graph.inputs().size() != 1) fail("{} inputs, expected one image", graph.inputs().size());
  const ValueId image = graph.inputs()[0];
  const Value& input = graph.value(image);
  const Shape& shape = input.desc.shape;
  if (shape.rank() != 4) fail("input '{}' is {}, expected an image", input.name, input.desc.str());
  const Shape bytes = attributes.channels_first ? Shape{shape[0], shape[2], shape[3], shape[1]} : shape;

  GraphBuilder builder;
  std::vector<ValueId> ids(graph.values().size(), kNoValue);
  const ValueId x = builder.add_input(input.name + kByteImageSuffix, TensorDesc{bytes, DType::u8});
  const ValueId entries = builder.add_constant(input.name + ".table", std::move(table));
  ids[index(image)] = builder.add1(input.name + ".normalize", std::make_shared<NormalizeImage>(attributes),
                                   {x, entries}, input.name);
  if (builder.value(ids[index(image)]).desc.shape != shape || input.desc.dtype != DType::f32)
    fail("input '{}' is {}, expected an image in f32", input.name, input.desc.str());
  const auto copy_of = [&](ValueId id) {
    if (id == kNoValue) return kNoValue;
    if (ids[index(id)] == kNoValue) {
      const Value& value = graph.value(id);
      ids[index(id)] = builder.add_constant(value.name, value.constant);
    }
    return ids[index(id)];
  };
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> inputs;
    std::vector<std::string> names;
    for (const ValueId id : node.inputs) inputs.push_back(copy_of(id));
    for (const ValueId id : node.outputs) names.push_back(graph.value(id).name);
    const std::vector<ValueId> outputs = builder.add(node.name, node.layer, inputs, names);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) ids[index(node.outputs[i])] = outputs[i];
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    builder.mark_output(copy_of(graph.outputs()[i]), graph.output_names()[i]);
  return builder.build();
}

}  // namespace pipit::internal
