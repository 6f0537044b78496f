// Batched matrix product (ONNX MatMul, NumPy semantics).
#pragma once

#include <array>

#include "engine/graph/layer.h"

namespace pipit::internal {

/// A matrix product broken into its batch: for every batch index, a [M, K] times a [K, N] matrix. Strides are
/// in elements of the row-major operands, 0 along broadcast dimensions.
struct MatMulGeometry {
  std::int64_t m = 1;
  std::int64_t k = 1;
  std::int64_t n = 1;
  int batch_rank = 0;
  std::array<std::int64_t, kMaxRank> batch{};
  Strides a_stride{};
  Strides b_stride{};

  std::int64_t batch_count() const;
  struct Offsets {
    std::int64_t a = 0;
    std::int64_t b = 0;
  };
  /// Where the matrices of batch entry `index` (row-major over `batch`) start.
  Offsets offsets(std::int64_t index) const;
};

/// Throws Error when the shapes do not match.
MatMulGeometry matmul_geometry(const Shape& a, const Shape& b);

/// y = A x B over the last two dimensions, the others broadcast; a rank-1 A is a row, a rank-1 B a column.
class MatMul final : public LayerOf<MatMul, NoAttributes> {
 public:
  static constexpr std::string_view kType = "MatMul";
  LayerTraits traits() const override { return {.family = LayerFamily::linear, .weights = 1}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
};

}  // namespace pipit::internal
