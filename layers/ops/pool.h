// Pooling windows and global pooling (ONNX MaxPool, AveragePool, LpPool, Global*Pool).
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/window.h"

namespace pipit::internal {

enum class PoolKind : std::uint8_t { max, average, lp };

struct PoolAttributes {
  PoolKind kind = PoolKind::max;
  Window window;
  bool global = false;  ///< one window over all spatial positions; `window` is ignored
  bool count_include_pad =
      false;             ///< average: padding counts in the divisor (never the part that ceil_mode adds)
  std::int64_t p = 2;    ///< lp: the norm's order
  bool indices = false;  ///< max: second output, i64 flat positions of the maxima (row-major NCHW)
  bool column_major_indices = false;  ///< ONNX storage_order = 1
};

/// The window that slides over this input: the attributes' own, or for global pooling all spatial positions.
/// Throws Error when there are none.
Window pool_window(const PoolAttributes& attributes, const Shape& input);

/// What average pooling divides by at one output position of a rank-3 window (as_3d): the taps inside the
/// input, or with count_include_pad those inside the padded input, so without what ceil_mode adds.
std::int64_t average_divisor(const Window& window, bool count_include_pad,
                             const std::array<std::int64_t, kMaxSpatial>& output,
                             const std::array<std::int64_t, kMaxSpatial>& input_extent);

/// Inputs: x [N, C, spatial...]; f32 or f64, max also i8 and u8. Padding is -inf for max and 0 for average and
/// lp. Of equal maxima the first in row-major order gives the index. Where a dilated window has no tap inside
/// the input at all, max is the type's lowest value with index -1 and average is 0.
class Pool final : public LayerOf<Pool, PoolAttributes> {
 public:
  static constexpr std::string_view kType = "Pool";
  explicit Pool(PoolAttributes attributes);

  LayerTraits traits() const override {
    const bool maxima = attributes_.kind == PoolKind::max && !attributes_.indices;
    return {.movement = maxima ? Movement::selected : Movement::none, .channelwise = !attributes_.indices};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  std::string summary() const override;
};

}  // namespace pipit::internal
