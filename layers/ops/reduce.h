// Reductions over dimensions (ONNX Reduce*, ArgMax, ArgMin).
#pragma once

#include <array>

#include "engine/graph/layer.h"

namespace pipit::internal {

enum class ReduceKind : std::uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp };

std::string_view reduce_name(ReduceKind kind);

struct ReduceAttributes {
  ReduceKind kind = ReduceKind::sum;
  std::vector<std::int64_t> axes;  ///< may be negative; empty: all dimensions
  bool keep_dims = true;
};

/// Which dimensions of `input` the axes name. Throws Error on an axis out of range or named twice.
std::array<bool, kMaxRank> reduced_dims(const ReduceAttributes& attributes, const Shape& input);

/// Inputs: x; the output has its dtype. Sums accumulate in double. Order of summation is fixed, so results do
/// not depend on threads. max and min return NaN where there is one. Of no elements: sum, l1, l2, sum_square 0;
/// prod 1; mean NaN; max, log_sum, log_sum_exp -inf; min inf; integers without such a value are refused.
/// Integers: sums and products wrap, the mean truncates; l2, log_sum, log_sum_exp need floating point.
class Reduce final : public LayerOf<Reduce, ReduceAttributes> {
 public:
  static constexpr std::string_view kType = "Reduce";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  /// any where the reduced dimensions stay as 1; row_major where they are dropped (the rank changes).
  LayoutPreference layout_preference() const override;
  std::string summary() const override;
};

/// Whether it is the mean over all spatial dimensions of x [N, C, spatial...], which a global average pool computes
/// too.
bool is_spatial_mean(const Reduce& layer, const Shape& x);

struct ArgMaxAttributes {
  std::int64_t axis = 0;
  bool keep_dims = true;
  bool select_last = false;  ///< which of equal maxima
  bool minimum = false;      ///< ArgMin
};

/// Inputs: x. Output: i64, the position of the maximum along `axis`; a NaN counts as larger (ArgMin: smaller)
/// than any number, as in NumPy.
class ArgMax final : public LayerOf<ArgMax, ArgMaxAttributes> {
 public:
  static constexpr std::string_view kType = "ArgMax";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override {
    return attributes_.keep_dims ? LayoutPreference::any : LayoutPreference::row_major;
  }
  std::string summary() const override;
};

}  // namespace pipit::internal
