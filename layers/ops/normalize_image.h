// From images as they are decoded, one byte a channel, to what a network reads.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct NormalizeImageAttributes {
  bool channels_first = true;     ///< y is [N, C, H, W]; else [N, H, W, C]
  bool reverse_channels = false;  ///< channel c of y is channel C - 1 - c of x: BGR of RGB
};

/// Inputs: x (u8, [N, H, W, C], at most 4 channels) and a table (f32, [C, 256]). Channel c of y is table[c][x]: any
/// function of a byte has the bits that are in the table. y is f32.
class NormalizeImage final : public LayerOf<NormalizeImage, NormalizeImageAttributes> {
 public:
  static constexpr std::string_view kType = "NormalizeImage";
  static constexpr std::int64_t kMaxChannels = 4;
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Strides of y in elements by what they step through, however y lies in memory.
struct ImageStrides {
  std::int64_t sample = 0, row = 0, pixel = 0, channel = 0;
  ImageStrides(const NormalizeImageAttributes& attributes, const TensorDesc& y) {
    const Strides s = y.strides();
    const bool first = attributes.channels_first;
    sample = s[0], row = s[first ? 2 : 1], pixel = s[first ? 3 : 2], channel = s[first ? 1 : 3];
  }
};

}  // namespace pipit::internal
