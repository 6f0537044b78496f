#include "layers/ops/normalize_image.h"

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

std::vector<TensorDesc> NormalizeImage::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  const TensorDesc& x = *inputs[0];
  if (x.dtype != DType::u8 || x.shape.rank() != 4 || x.shape[3] < 1 || x.shape[3] > kMaxChannels)
    fail("{}: x is {}; expected u8 [N, H, W, C] with 1 to {} channels", kType, x.str(), kMaxChannels);
  const std::int64_t channels = x.shape[3];
  check_operand(*inputs[1], Shape{channels, 256}, DType::f32, kType, "the table");
  const Shape y = attributes_.channels_first ? Shape{x.shape[0], channels, x.shape[1], x.shape[2]} : x.shape;
  return {{y, DType::f32}};
}

bool NormalizeImage::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string NormalizeImage::summary() const {
  const std::string order = attributes_.channels_first ? "NHWC to NCHW" : "NHWC";
  return attributes_.reverse_channels ? order + " reversed" : order;
}

}  // namespace pipit::internal
