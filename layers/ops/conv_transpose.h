// Transposed convolution (ONNX ConvTranspose; "deconvolution", fractionally strided convolution).
#pragma once

#include <array>

#include "engine/graph/layer.h"
#include "layers/ops/clamp.h"
#include "layers/ops/window.h"

namespace pipit::internal {

struct ConvTransposeAttributes {
  /// Pads are taken off the output. ceil_mode has no meaning.
  Window window;
  /// Positions added at the end of the output, which no or fewer taps reach.
  std::array<std::int64_t, kMaxSpatial> output_padding{0, 0, 0};
  std::int64_t groups = 1;
  Clamp activation;
};

/// Input position i adds x[i] w[k] to output position i * stride + k * dilation - pad_begin, along every axis. Then the
/// bias and the activation.
/// Inputs: x [N, C, spatial...]; weights [C, O/groups, kernel...]; bias [O] (optional). Group g reads channels
/// [g C/groups, (g+1) C/groups) and writes [g O/groups, (g+1) O/groups).
/// Output extent: (in - 1) * stride + span + output_padding - pads.
class ConvTranspose final : public LayerOf<ConvTranspose, ConvTransposeAttributes> {
 public:
  static constexpr std::string_view kType = "ConvTranspose";
  explicit ConvTranspose(ConvTransposeAttributes attributes);

  LayerTraits traits() const override { return {.family = LayerFamily::convolution, .weights = 1}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

/// The attributes with the pads, and where these would be negative the output padding, with which the spatial output is
/// `output`. Of an odd number of pads the odd one is at the end for same_upper, at the beginning otherwise, as ONNX has
/// it.
ConvTransposeAttributes with_output_shape(ConvTransposeAttributes attributes,
                                          std::span<const std::int64_t> input_spatial,
                                          std::span<const std::int64_t> output, AutoPad auto_pad);

}  // namespace pipit::internal
