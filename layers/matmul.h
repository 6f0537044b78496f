// Batched matrix product (ONNX MatMul, NumPy semantics).
#pragma once

#include "engine/layer.h"

namespace pipit {

/// y = A x B over the last two dimensions, the others broadcast; a rank-1 A is a row, a rank-1 B a column.
class MatMul final : public Layer {
 public:
  static constexpr std::string_view kType = "MatMul";
  std::string_view type() const override { return kType; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
};

}  // namespace pipit
