// Resize and Upsample: nearest and (multi-)linear.
#pragma once

#include <array>

#include "engine/layer.h"

namespace pipit {

enum class ResizeMode : std::uint8_t { nearest, linear };
enum class ResizeCoordinates : std::uint8_t {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
};
enum class ResizeNearest : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };

struct ResizeAttributes {
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::half_pixel;
  ResizeNearest nearest = ResizeNearest::round_prefer_floor;
  int rank = 4;
  /// Output extent / input extent per dimension; used in the coordinate mapping even where `sizes` is given.
  std::array<float, kMaxRank> scales{1, 1, 1, 1, 1, 1};
  /// Output extents; 0 means floor(input * scale).
  std::array<std::int64_t, kMaxRank> sizes{};
};

/// ONNX Resize without antialiasing. Inputs: x, rank as in the attributes.
class Resize final : public Layer {
 public:
  static constexpr std::string_view kType = "Resize";
  explicit Resize(ResizeAttributes attributes);
  const ResizeAttributes& attributes() const { return attributes_; }

  std::string_view type() const override { return kType; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  std::string summary() const override;

 private:
  ResizeAttributes attributes_;
};

}  // namespace pipit
