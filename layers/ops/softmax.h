// Softmax and LogSoftmax.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct SoftmaxAttributes {
  std::int64_t axis = -1;
  bool log = false;
  /// Opsets before 13: normalize over all dimensions from `axis` on, as one.
  bool flatten_from_axis = false;
};

/// The dimensions [begin, end) that one softmax normalizes over together.
struct SoftmaxGroups {
  int begin = 0;
  int end = 0;
};
SoftmaxGroups softmax_groups(const SoftmaxAttributes& attributes, const Shape& shape);

/// Numerically stable: the maximum is subtracted before the exponential. Inputs: x.
class Softmax final : public LayerOf<Softmax, SoftmaxAttributes> {
 public:
  static constexpr std::string_view kType = "Softmax";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  /// row_major when flatten_from_axis spans several dimensions.
  LayoutPreference layout_preference() const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
