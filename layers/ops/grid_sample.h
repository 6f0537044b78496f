// Sampling at positions that are computed (ONNX GridSample; Jaderberg et al., "Spatial Transformer Networks", 2015).
#pragma once

#include <array>

#include "engine/graph/layer.h"
#include "layers/ops/resize.h"

namespace pipit::internal {

/// What is read outside the input.
enum class GridPadding : std::uint8_t { zeros, border, reflection };

struct GridSampleAttributes {
  ResizeMode mode = ResizeMode::linear;  ///< cubic: the kernel of Keys with -0.75
  GridPadding padding = GridPadding::zeros;
  /// -1 and 1 are the middles of the outermost elements instead of their edges.
  bool align_corners = false;
};

/// Inputs: x [N, C, spatial...]; grid [N, output spatial..., number of spatial dimensions], whose last dimension has
/// positions from -1 to 1, the innermost dimension of x first. Both f32 or f64. Positions that are no number count as
/// outside, and as the first element where there is no outside.
class GridSample final : public LayerOf<GridSample, GridSampleAttributes> {
 public:
  static constexpr std::string_view kType = "GridSample";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

/// The elements along one dimension that a position mixes; those that weigh nothing are left out.
struct GridTaps {
  int count = 0;
  std::array<std::int64_t, 4> index{};
  std::array<float, 4> weight{};
};
GridTaps grid_taps(const GridSampleAttributes& attributes, double position, std::int64_t extent);
/// The most that there are.
constexpr int max_grid_taps(ResizeMode mode) {
  return mode == ResizeMode::nearest ? 1 : mode == ResizeMode::linear ? 2 : 4;
}

}  // namespace pipit::internal
