#include "layers/cpu/linear/byte_state.h"

#include <cmath>

#include "engine/base/ceil_div.h"
#include "layers/cpu/vector/byte_loops.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kScratchLine = 64;

// A pixel of `inputs` channels that is convolved with one tap; the residual is what is added to.
TileConvolution::Geometry state_geometry(std::int64_t inputs, std::int64_t outputs, int parts) {
  Window window;
  window.rank = 1;
  TileConvolution::Geometry geometry{TensorDesc{Shape{1, inputs, 1}, DType::u8, Layout::channels_last},
                                     Shape{1, outputs, 1}, window};
  geometry.residual = true;
  geometry.fusion.overwritten = 0;
  geometry.parts = parts;
  return geometry;
}

}  // namespace

ByteStateProduct::ByteStateProduct(const SplitWeights& weights, std::span<const float> scales,
                                   std::int64_t inputs)
    : inputs_(inputs),
      convolution_(state_geometry(inputs, std::ssize(scales), weights.parts()),
                   // The zero point of a state is a factor of what sums begin with.
                   {{1, 1, DType::u8}, {}, {}, {scales.begin(), scales.end()}, {}}, weights, 1),
      state_at_(static_cast<std::size_t>(
          round_up(static_cast<std::int64_t>(convolution_.scratch_bytes()), kScratchLine))),
      sum_bias_at_(state_at_ + static_cast<std::size_t>(round_up(inputs + ConvInput::kSlack, kScratchLine))),
      multipliers_at_(sum_bias_at_ + convolution_.sum_bias().size_bytes()) {}

std::size_t ByteStateProduct::scratch_bytes() const {
  return multipliers_at_ + convolution_.multipliers().size_bytes();
}

void ByteStateProduct::add(const float* x, float* y, const RunContext& context) const {
  std::byte* const state = context.scratch + state_at_;
  auto* const sum_bias = reinterpret_cast<std::int32_t*>(context.scratch + sum_bias_at_);
  auto* const multipliers = reinterpret_cast<float*>(context.scratch + multipliers_at_);
  const ValueRange range = value_range(x, inputs_);
  const AffineScale found = affine_scale(range.low, range.high);
  if (std::isnan(found.scale)) {
    std::fill_n(state, inputs_, std::byte{0});
  } else {
    quantize_span(x, found.scale, ByteTarget(found.quantization()), state, inputs_);
  }
  const std::span<const std::int32_t> sums_of_one = convolution_.sum_bias();
  for (std::size_t o = 0; o < sums_of_one.size(); ++o) sum_bias[o] = found.zero_point * sums_of_one[o];
  const std::span<const float> scales = convolution_.multipliers();
  for (std::size_t o = 0; o < scales.size(); ++o) multipliers[o] = found.scale * scales[o];
  const auto* residual = reinterpret_cast<const std::byte*>(y);
  convolution_.run(state, nullptr, residual, reinterpret_cast<std::byte*>(y), context,
                   {nullptr, 0, found.zero_point, sum_bias, multipliers});
}

}  // namespace pipit::internal
