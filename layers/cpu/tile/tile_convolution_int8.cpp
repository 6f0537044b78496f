// What a convolution on the tile kernel needs for INT8: weights, and the arithmetic behind the sums.
#include <numeric>
#include <utility>

#include "layers/cpu/tile/tile_convolution.h"

namespace pipit {

namespace {

TileType tile_type(DType type) {
  return type == DType::f32 ? TileType::f32 : type == DType::i8 ? TileType::s8 : TileType::u8;
}

std::int64_t bytes_of(DType type) {
  return static_cast<std::int64_t>(dtype_bytes(type));
}

}  // namespace

TileConvolution::TileConvolution(const Geometry& geometry, Int8 arithmetic, const std::int8_t* weights,
                                 int threads)
    : TileConvolution(geometry, threads) {
  pack(weights);
  start_sums(arithmetic, weights);
  multipliers_ = std::move(arithmetic.multipliers);
  const Quantization& y = arithmetic.y;
  const Quantization& residual = arithmetic.residual;
  TileCall& shared = loop_.shared;
  shared.sum_bias = sum_bias_.data();
  shared.multiplier = multipliers_.data();
  shared.residual_scale = residual.scale / (y.quantized() ? y.scale : 1.0F);
  shared.residual_zero_point = residual.zero_point;
  shared.residual_type = tile_type(residual.dtype);
  shared.output_type = tile_type(y.dtype);
  shared.zero_point = y.zero_point;
  if (y.quantized()) {
    const StepBounds bounds = step_bounds(y, geometry.activation.low, geometry.activation.high);
    shared.low = bounds.low;
    shared.high = bounds.high;
  }
  store_as(geometry, bytes_of(y.dtype), bytes_of(y.dtype), bytes_of(residual.dtype));
}

// Zero points: sum((x - zero_point) * w) = sum(x * w) - zero_point * sum(w), modulo 2^32 like every int32 sum here.
void TileConvolution::start_sums(const Int8& arithmetic, const std::int8_t* weights) {
  const auto depth = static_cast<std::int64_t>(input_.segments().size()) * input_.run_elements();
  const int zero_point = arithmetic.x.zero_point + (arithmetic.x.dtype == DType::i8 ? 128 : 0);
  sum_bias_.resize(static_cast<std::size_t>(channels_));
  for (std::size_t o = 0; o < sum_bias_.size(); ++o) {
    const std::int8_t* filter = weights + static_cast<std::int64_t>(o) * depth;
    const std::int64_t sum = std::accumulate(filter, filter + depth, std::int64_t{0});
    const std::int64_t bias = arithmetic.bias.empty() ? 0 : arithmetic.bias[o];
    sum_bias_[o] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias - zero_point * sum));
  }
}

void TileConvolution::pack(const std::int8_t* weights) {
  packed_ = HostBuffer(static_cast<std::size_t>(loop_.packed_bytes()));
  const std::int64_t run = input_.run_elements();
  const std::int64_t depth = loop_.segment_count * run;
  for (std::int64_t g = 0; g < loop_.groups; ++g) {
    for (std::int64_t p = 0; p < loop_.panels.count(); ++p) {
      pack_s8_panel(loop_.panels, p,
                    {weights + g * loop_.panels.outputs * depth, depth, loop_.segment_count, run, run, 1},
                    packed_.data() + g * loop_.panels.bytes());
    }
  }
}

}  // namespace pipit
