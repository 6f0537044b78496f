// Resize and Upsample: nearest, (multi-)linear and cubic, with and without antialiasing.
#pragma once

#include <array>
#include <vector>

#include "engine/graph/layer.h"

namespace pipit::internal {

enum class ResizeMode : std::uint8_t { nearest, linear, cubic };
enum class ResizeCoordinates : std::uint8_t {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
};
enum class ResizeNearest : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };

/// How linear and cubic weigh positions.
struct ResizeFilter {
  float cubic_a = -0.75F;  ///< the coefficient of the cubic convolution kernel (Keys 1981)
  bool antialias = false;  ///< widen the kernel by 1 / scale where an axis shrinks
  bool exclude_outside =
      false;  ///< positions outside the input weigh nothing; else the one at the edge repeats
};

struct ResizeAttributes {
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::half_pixel;
  ResizeNearest nearest = ResizeNearest::round_prefer_floor;
  int rank = 4;
  /// Output extent / input extent per dimension; used in the coordinate mapping even where `sizes` is given.
  std::array<float, kMaxRank> scales{1, 1, 1, 1, 1, 1};
  /// Output extents; 0 means floor(input * scale).
  std::array<std::int64_t, kMaxRank> sizes{};
  ResizeFilter filter;
};

/// ONNX Resize. Inputs: x, rank as in the attributes; f32 or f64, nearest any type.
class Resize final : public LayerOf<Resize, ResizeAttributes> {
 public:
  static constexpr std::string_view kType = "Resize";
  explicit Resize(ResizeAttributes attributes);

  LayerTraits traits() const override {
    const bool nearest = attributes_.mode == ResizeMode::nearest;
    return {.movement = nearest ? Movement::repeated : Movement::none,
            .channelwise = attributes_.scales[1] == 1};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  LayerPtr for_samples(std::int64_t samples) const override;
  std::string summary() const override;
};

/// False where every output position is the input position of the same index: the axis is not resized.
bool resizes_axis(const ResizeAttributes& attributes, int axis, std::int64_t input_extent);

/// Where output position `output` lies along one axis of the input (ONNX coordinate_transformation_mode),
/// before clamping. Computed in float as ONNX Runtime does: a scale such as 1/3 then still hits whole positions
/// that the exact quotient by the rounded scale just misses.
float source_coordinate(const ResizeAttributes& attributes, int axis, std::int64_t output,
                        std::int64_t input_extent, std::int64_t output_extent);

/// The input position that nearest mode reads for position `output`, within [0, input_extent). Where the scale is the
/// quotient of the extents (sizes are given, or a scale that divides evenly) the coordinate is that exact fraction, so
/// that a tie is one: 11 to 26, asymmetric, puts position 13 at 5.5, where floats are just above it. ONNX Runtime
/// rounds there. Other scales give source_coordinate().
std::int64_t nearest_position(const ResizeAttributes& attributes, int axis, std::int64_t output,
                              std::int64_t input_extent, std::int64_t output_extent);

/// Cubic mode, and linear mode with antialiasing or without what is outside: resize_taps() says what is mixed.
bool is_filtered(const ResizeAttributes& attributes);

/// The input positions that a filtered axis mixes for position `output` and their weights: the kernel around
/// source_coordinate(), widened by 1 / scale where it is antialiased, and normalized where part of it may be missing.
struct ResizeTaps {
  std::int64_t first = 0;
  std::vector<double> weights;
};
ResizeTaps resize_taps(const ResizeAttributes& attributes, int axis, std::int64_t output,
                       std::int64_t input_extent, std::int64_t output_extent);

/// The two input positions that linear mode mixes: (1 - weight) * x[low] + weight * x[high].
struct LinearTap {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight = 0;
};
LinearTap linear_tap(float coordinate, std::int64_t input_extent);

}  // namespace pipit::internal
