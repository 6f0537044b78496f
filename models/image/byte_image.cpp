#include "models/image/byte_image.h"

#include "layers/passes/byte_image.h"

namespace pipit::internal {

Graph with_byte_image(const Graph& graph, const Preprocess& preprocess) {
  if (graph.inputs().size() != 1) fail("{} inputs, expected one image", graph.inputs().size());
  const Value& input = graph.value(graph.inputs()[0]);
  const std::optional<ImageInput> image = image_input(input.desc.shape);
  if (!image) fail("input '{}' is {}, expected images of 1 or 3 channels", input.name, input.desc.str());
  Tensor table =
      Tensor::from<float>(Shape{image->channels, 256}, normalization_table(preprocess, image->channels));
  return with_byte_image(graph,
                         {.channels_first = image->layout == Layout::row_major,
                          .reverse_channels = preprocess.bgr && image->channels == 3},
                         std::move(table));
}

}  // namespace pipit::internal
