#include "layers/cpu/tile/tile_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace pipit::internal {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kHalf = 2;

TileType tile_type(DType type) {
  return type == DType::f32 ? TileType::f32 : type == DType::i8 ? TileType::s8 : TileType::u8;
}

std::int64_t bytes_of(DType type) {
  return static_cast<std::int64_t>(dtype_bytes(type));
}

// Zero points: sum((x - zero_point) * w) = sum(x * w) - zero_point * sum(w), modulo 2^32 like every int32 sum here.
std::vector<std::int32_t> start_sums(const ByteArithmetic& bytes, const ByteWeights& weights,
                                     std::int64_t channels, std::int64_t depth) {
  const int zero_point = bytes.x.zero_point + (bytes.x.dtype == DType::i8 ? 128 : 0);
  std::vector<std::int32_t> start(static_cast<std::size_t>(channels));
  std::vector<std::int8_t> room;
  for (std::size_t o = 0; o < start.size(); ++o) {
    const std::int8_t* filter = weights.outputs(static_cast<std::int64_t>(o), 1, room);
    const std::int64_t sum = std::accumulate(filter, filter + depth, std::int64_t{0});
    const std::int64_t bias = bytes.bias.empty() ? 0 : bytes.bias[o];
    start[o] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias - zero_point * sum));
  }
  return start;
}

// Sums are less than 2^31, steps of a residual from its zero point less than 2^9.
bool stay_small(const std::vector<float>& multipliers, float residual_scale) {
  constexpr float kMaxMultiplier = 0.25F;
  constexpr float kMaxScale = 1 << 20;
  const auto small = [](float m) { return std::abs(m) <= kMaxMultiplier; };
  return std::abs(residual_scale) <= kMaxScale && std::all_of(multipliers.begin(), multipliers.end(), small);
}

}  // namespace

TileArithmetic float_arithmetic(DType stored, const Clamp& activation, bool residual) {
  TileArithmetic result;
  result.kernels = &f32_tiles();
  result.shared.low = activation.low;
  result.shared.high = activation.high;
  result.stored = stored;
  result.stored_bytes = bytes_of(stored);
  result.rounds_results = is_stored_float(stored);
  result.widens_residual = is_stored_float(stored) && residual;
  return result;
}

TileArithmetic stored_arithmetic(DType stored, const TileKernels& kernels, const Clamp& activation,
                                 std::int64_t channels, bool more) {
  const bool halves = stored == DType::f16;
  TileArithmetic result;
  result.kernels = &kernels;
  result.products = halves ? Products::fp16 : Products::bf16;
  result.stored = stored;
  result.shared.low = activation.low;
  result.shared.high = activation.high;
  result.shared.output_type = more ? TileType::f32 : halves ? TileType::f16 : TileType::bf16;
  result.rounds_results = more;
  result.stored_bytes = result.residual_bytes = kHalf;
  result.result_bytes = more ? kFloat : kHalf;
  if (halves) result.multipliers.resize(static_cast<std::size_t>(channels));
  result.shared.multiplier = result.multipliers.data();
  return result;
}

TileArithmetic byte_arithmetic(const TileKernels& kernels, ByteArithmetic bytes, const Clamp& activation,
                               const ByteWeights& weights, std::int64_t channels, std::int64_t depth) {
  const Quantization& y = bytes.y;
  const Quantization& residual = bytes.residual;
  TileArithmetic result;
  result.kernels = &kernels;
  result.products = Products::int8;
  result.sum_bias = start_sums(bytes, weights, channels, depth);
  result.multipliers = std::move(bytes.multipliers);
  TileCall& shared = result.shared;
  shared.low = activation.low;
  shared.high = activation.high;
  if (y.quantized()) {
    const StepBounds bounds = step_bounds(y, activation.low, activation.high);
    shared.low = bounds.low;
    shared.high = bounds.high;
  }
  shared.sum_bias = result.sum_bias.data();
  shared.multiplier = result.multipliers.data();
  shared.residual_scale = residual.scale / (y.quantized() ? y.scale : 1.0F);
  shared.residual_zero_point = residual.zero_point;
  shared.residual_type = tile_type(residual.dtype);
  shared.output_type = tile_type(y.dtype);
  shared.zero_point = y.zero_point;
  shared.small = stay_small(result.multipliers, shared.residual_scale);
  result.stored = y.dtype;
  result.stored_bytes = result.result_bytes = bytes_of(y.dtype);
  result.residual_bytes = bytes_of(residual.dtype);
  return result;
}

}  // namespace pipit::internal
