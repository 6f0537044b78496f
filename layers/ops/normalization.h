// Batch, layer, instance and local response normalization.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct BatchNormAttributes {
  float epsilon = 1e-5F;
};

/// Inference form of ONNX BatchNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + bias along
/// dimension 1. Inputs: x [N, C, ...]; scale, bias, mean, var, each [C].
class BatchNorm final : public LayerOf<BatchNorm, BatchNormAttributes> {
 public:
  static constexpr std::string_view kType = "BatchNorm";
  explicit BatchNorm(BatchNormAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  bool may_run_in_place(int index) const override { return index == 0; }
};

struct LayerNormAttributes {
  std::int64_t axis = -1;  ///< normalizes over dimensions axis .. rank-1
  float epsilon = 1e-5F;
  int outputs = 1;  ///< 3: also the mean and 1 / standard deviation, with the normalized dimensions kept as 1
  /// No mean is subtracted: x over the root of its mean square (Zhang and Sennrich, "Root Mean Square Layer
  /// Normalization", 2019). One output.
  bool rms = false;
};

/// ONNX LayerNormalization and RMSNormalization. Inputs: x; scale and bias (optional), broadcastable to the normalized
/// dimensions.
class LayerNorm final : public LayerOf<LayerNorm, LayerNormAttributes> {
 public:
  static constexpr std::string_view kType = "LayerNorm";
  explicit LayerNorm(LayerNormAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  std::string summary() const override;
};

struct InstanceNormAttributes {
  float epsilon = 1e-5F;
  std::int64_t groups =
      0;  ///< of neighbouring channels that have one mean and deviation; 0: each has its own
};

/// ONNX InstanceNormalization over the spatial dimensions, with groups GroupNormalization (Wu and He 2018), which a
/// pass makes. Inputs: x [N, C, spatial...]; scale [C]; bias [C].
class InstanceNorm final : public LayerOf<InstanceNorm, InstanceNormAttributes> {
 public:
  static constexpr std::string_view kType = "InstanceNorm";
  explicit InstanceNorm(InstanceNormAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Positions of x [N, C, spatial...].
std::int64_t positions_of(const Shape& x);
/// Channels of x that have one mean and deviation.
std::int64_t channels_of_group(const InstanceNormAttributes& attributes, const Shape& x);

struct LrnAttributes {
  float alpha = 1e-4F;
  float beta = 0.75F;
  float bias = 1.0F;
  std::int64_t size = 1;
};

/// The channels [begin, end) whose squares LRN adds up for channel c: floor((size - 1) / 2) before it and
/// ceil((size - 1) / 2) after it, as far as they exist.
struct LrnWindow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
LrnWindow lrn_window(const LrnAttributes& attributes, std::int64_t c, std::int64_t channels);

/// ONNX LRN (Krizhevsky et al. 2012): y = x / (bias + alpha / size * sum of squares over `size` neighbouring
/// channels) ^ beta. Inputs: x [N, C, ...].
class Lrn final : public LayerOf<Lrn, LrnAttributes> {
 public:
  static constexpr std::string_view kType = "LRN";
  explicit Lrn(LrnAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  std::string summary() const override;
};

}  // namespace pipit::internal
