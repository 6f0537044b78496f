// Convolution (ONNX Conv), with what the fuse passes fold into it.
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/clamp.h"
#include "layers/ops/window.h"

namespace pipit::internal {

struct ConvAttributes {
  Window window;
  std::int64_t groups = 1;
  Clamp activation;
};

/// y = activation(conv(x, w) + bias + residual).
/// Inputs: x [N, C, spatial...]; weights [O, C/groups, kernel...]; bias [O] (optional); residual, shaped like
/// the output (optional, made by the fuse pass). Group g reads channels [g C/groups, (g+1) C/groups).
class Conv final : public LayerOf<Conv, ConvAttributes> {
 public:
  static constexpr std::string_view kType = "Conv";
  explicit Conv(ConvAttributes attributes);

  LayerTraits traits() const override {
    return {.family = LayerFamily::convolution, .weights = 1, .residual = 3};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
