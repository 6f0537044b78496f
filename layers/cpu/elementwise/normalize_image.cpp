// NormalizeImage: rows of images are shared out, a channel of a row at a time.
#include "layers/ops/normalize_image.h"

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

Refusal refuse_normalize_image(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (!is_row_major(*spec.inputs[0]) || !is_row_major(*spec.inputs[1]))
    return "the image and the table must be row_major";
  return std::nullopt;
}

void run_normalize_image(const NormalizeImage& layer, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const ImageStrides to(layer.attributes(), outputs[0].desc);
  const auto* x = inputs[0].as<std::uint8_t>();
  const auto* table = inputs[1].as<float>();
  auto* y = outputs[0].as<float>();
  parallel_chunks(context.pool, shape[0] * height, rows_per_chunk(width * channels),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      float* row = y + r / height * to.sample + r % height * to.row;
                      for (std::int64_t c = 0; c < channels; ++c) {
                        const std::int64_t source =
                            layer.attributes().reverse_channels ? channels - 1 - c : c;
                        const std::uint8_t* from = x + r * width * channels + source;
                        for (std::int64_t w = 0; w < width; ++w)
                          row[c * to.channel + w * to.pixel] = table[c * 256 + from[w * channels]];
                      }
                    }
                  });
}

}  // namespace

void register_cpu_normalize_image(Registry& registry) {
  add_layer_kernel<NormalizeImage>(registry, "table", refuse_normalize_image, run_normalize_image);
}

}  // namespace pipit::internal
