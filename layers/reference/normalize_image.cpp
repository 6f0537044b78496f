#include "layers/ops/normalize_image.h"

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/index.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

void run(const NormalizeImage& layer, std::span<const ConstTensorView> inputs,
         std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const Strides from = inputs[0].desc.strides();
  const Strides entry = inputs[1].desc.strides();
  const ImageStrides to(layer.attributes(), outputs[0].desc);
  const std::int64_t channels = inputs[0].desc.shape[3];
  for_each_index(inputs[0].desc.shape, [&](const Index& i) {
    const std::uint8_t byte = inputs[0].as<std::uint8_t>()[offset_of(i, from, 4)];
    const std::int64_t c = layer.attributes().reverse_channels ? channels - 1 - i[3] : i[3];
    outputs[0].as<float>()[i[0] * to.sample + i[1] * to.row + i[2] * to.pixel + c * to.channel] =
        inputs[1].as<float>()[c * entry[0] + byte * entry[1]];
  });
}

}  // namespace

void register_reference_normalize_image(Registry& registry) {
  add_layer_kernel<NormalizeImage>(registry, kReference, refuse_reduced_precision, run);
}

}  // namespace pipit::internal
