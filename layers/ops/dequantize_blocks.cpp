#include "layers/ops/dequantize_blocks.h"

#include <fmt/format.h>

#include <cmath>

#include "layers/ops/inference_checks.h"

namespace pipit::internal {

DequantizeBlocks::DequantizeBlocks(BlockQuantization x) : LayerOf(std::move(x)) {
  if (attributes_.axis < 0 || attributes_.block < 1)
    fail("{}: blocks of {} along axis {}", kType, attributes_.block, attributes_.axis);
  for (const float scale : attributes_.scales) {
    if (!std::isfinite(scale)) fail("{}: a scale is {}", kType, scale);
  }
}

std::vector<TensorDesc> DequantizeBlocks::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const Shape& shape = inputs[0]->shape;
  check_operand(*inputs[0], shape, DType::i8, kType, "x");
  const BlockQuantization& q = attributes_;
  if (q.axis >= shape.rank()) fail("{}: axis {} of a tensor of shape {}", kType, q.axis, shape.str());
  const std::int64_t extent = shape[static_cast<int>(q.axis)];
  const std::int64_t blocks = extent / q.block + (extent % q.block != 0 ? 1 : 0);
  const std::int64_t scales = extent == 0 ? 0 : shape.elements() / extent * blocks;
  if (std::ssize(q.scales) != scales)
    fail("{}: {} scales for blocks of {} along axis {} of {}, which have {}", kType, q.scales.size(), q.block,
         q.axis, shape.str(), scales);
  return {{shape, DType::f32}};
}

bool DequantizeBlocks::is_batch_independent(const SampledInputs& /*inputs*/) const {
  return false;  // scales are of the tensor as it is
}

std::string DequantizeBlocks::summary() const {
  return fmt::format("blocks of {}, axis {}", attributes_.block, attributes_.axis);
}

}  // namespace pipit::internal
