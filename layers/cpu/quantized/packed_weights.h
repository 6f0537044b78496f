// The weights of WLinear and WConv in the panels of packed_kernel.h.
#pragma once

#include "engine/graph/shared_buffer.h"
#include "layers/cpu/tile/packed_kernel.h"
#include "layers/cpu/tile/stored_panels.h"
#include "layers/ops/weight_only.h"

namespace pipit::internal {

class PackedWeights final : public StoredPanels {
 public:
  /// `weights` and `scales` as layers/ops/weight_only.h has them.
  PackedWeights(const WeightFormat& format, const Tensor& weights, const Tensor& scales, std::int64_t depth);

  void widen(std::int64_t panel, std::byte* to) const override;
  std::span<const std::byte> kept(std::int64_t panel) const override;
  std::size_t bytes() const override { return packed_.bytes() + scales_.bytes(); }

  const TilePanels& panels() const { return panels_; }
  /// y = clamp(x w + bias + residual) for the outputs of one panel and `rows` rows. The call brings x, y, residual (of
  /// the layer's output 0) with their strides, and in `finish` the bounds and the bias (of output 0 as well, or null).
  void multiply(std::int64_t panel, std::int64_t rows, PackedCall call) const;

 private:
  PackedCall call_of(std::int64_t panel) const;
  std::int64_t block_bytes(std::int64_t width) const { return width * format_.bits; }
  std::int64_t panel_offset(std::int64_t panel) const { return panel * blocks_ * block_bytes(panels_.panel); }
  std::int64_t scales_offset(std::int64_t panel) const { return panel * groups_ * panels_.panel; }
  void pack(std::int64_t panel, const std::byte* weights, const float* scales, std::byte* blocks,
            float* to_scales) const;

  WeightFormat format_;
  const PackedKernels& kernels_;
  TilePanels panels_;  // steps are K
  std::int64_t group_;
  std::int64_t groups_;
  std::int64_t blocks_;
  SharedBuffer packed_;
  SharedBuffer scales_;  // [panel][groups][width]
};

}  // namespace pipit::internal
