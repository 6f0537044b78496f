// Weight-only quantization: weights are stored as integers of 8 or 4 bits, activations and arithmetic stay in f32.
#pragma once

#include <cstddef>

#include "engine/graph/layer.h"
#include "layers/ops/conv.h"

namespace pipit::internal {

/// How a matrix of weights [O, K] is stored: weight (o, k) is q(o, k) * scale(o, k / group_size).
/// 8 bits: q is i8 [O, K]. 4 bits: q is u8 [O, ceil(K / 2)], two's complement, element 2i in the low half of byte i
/// (as ONNX packs INT4); the high half of the last byte of an odd row is 0. Scales are f32 [O, ceil(K / group_size)];
/// the last group of a row holds what is left.
struct WeightFormat {
  int bits = 8;
  std::int64_t group_size = 0;  ///< along K, a positive multiple of 8; 0: one scale per row

  /// Bytes of one row of `depth` weights.
  std::int64_t row_bytes(std::int64_t depth) const { return bits == 4 ? (depth + 1) / 2 : depth; }
  /// Weights that share a scale, and how many such groups a row has.
  std::int64_t group(std::int64_t depth) const {
    return group_size == 0 || group_size > depth ? depth : group_size;
  }
  std::int64_t groups(std::int64_t depth) const {
    return depth == 0 ? 0 : (depth + group(depth) - 1) / group(depth);
  }
  /// The integer of weight k of a row.
  int at(const std::byte* row, std::int64_t k) const {
    const auto byte = static_cast<unsigned>(row[bits == 4 ? k / 2 : k]);
    if (bits == 8) return static_cast<std::int8_t>(byte);
    const auto half = static_cast<int>(k % 2 == 0 ? byte & 15U : byte >> 4U);
    return (half ^ 8) - 8;
  }
  /// Stores it in a row that is 0 there.
  void set(std::byte* row, std::int64_t k, int integer) const {
    const auto all = static_cast<unsigned>(integer);
    if (bits == 8) {
      row[k] = static_cast<std::byte>(all);
    } else {
      row[k / 2] |= static_cast<std::byte>((all & 15U) << (4 * (k % 2)));
    }
  }
};

struct WLinearAttributes {
  WeightFormat format;
  Clamp activation;
};

/// y = activation(x w + bias) with w in the format above; rounded to f32 wherever a kernel likes, as for f32 weights.
/// Inputs: x [..., K] (f32), weights [O, K] and scales [O, groups] (constant), bias [O] (f32, optional). Output
/// [..., O].
class WLinear final : public LayerOf<WLinear, WLinearAttributes> {
 public:
  static constexpr std::string_view kType = "WLinear";
  explicit WLinear(WLinearAttributes attributes);

  LayerTraits traits() const override { return {.family = LayerFamily::linear, .weights = 1}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

struct WConvAttributes {
  WeightFormat format;
  ConvAttributes conv;  ///< one tap and one group
};

/// A convolution of one tap, y = activation(conv(x, w) + bias + residual), with w in the format above.
/// Inputs: x [N, K, spatial...] (f32), weights [O, K] and scales [O, groups] (constant), bias [O] (f32, optional),
/// residual, shaped like y (optional).
class WConv final : public LayerOf<WConv, WConvAttributes> {
 public:
  static constexpr std::string_view kType = "WConv";
  explicit WConv(WConvAttributes attributes);

  LayerTraits traits() const override {
    return {.family = LayerFamily::convolution, .weights = 1, .residual = 4};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
