// Joining, cutting and padding along dimensions: Concat, Split, Slice, Pad.
#pragma once

#include <array>

#include "engine/graph/layer.h"

namespace pipit::internal {

struct ConcatAttributes {
  std::int64_t axis = 0;
};

/// Inputs: one or more tensors equal but for the extent of `axis`.
class Concat final : public LayerOf<Concat, ConcatAttributes> {
 public:
  static constexpr std::string_view kType = "Concat";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

struct SplitAttributes {
  std::int64_t axis = 0;
  std::vector<std::int64_t> sizes;  ///< one per output, summing to the extent of the axis
};

/// Inputs: x. One output per size.
class Split final : public LayerOf<Split, SplitAttributes> {
 public:
  static constexpr std::string_view kType = "Split";
  explicit Split(SplitAttributes attributes);

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// One entry per sliced dimension, ONNX semantics: negative positions count from the end and are clamped;
/// a negative step walks backwards.
struct SliceAttributes {
  std::vector<std::int64_t> starts, ends, axes, steps;
};

/// Inputs: x.
class Slice final : public LayerOf<Slice, SliceAttributes> {
 public:
  static constexpr std::string_view kType = "Slice";
  explicit Slice(SliceAttributes attributes);

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

/// The attributes against one shape: where output 0 starts along every dimension, the step, and how many.
struct ResolvedSlice {
  std::array<std::int64_t, kMaxRank> start{};
  std::array<std::int64_t, kMaxRank> step{};
  std::array<std::int64_t, kMaxRank> count{};
};
ResolvedSlice resolve_slice(const SliceAttributes& attributes, const Shape& input);

enum class PadMode : std::uint8_t { constant, reflect, edge, wrap };

struct PadAttributes {
  PadMode mode = PadMode::constant;
  /// Elements added before and after every dimension; negative removes.
  std::vector<std::int64_t> begin, end;
  double value = 0;
};

/// Where a dimension of `extent` elements is read for `position`, counted from its first one; -1: nowhere (constant).
std::int64_t padded_source(PadMode mode, std::int64_t position, std::int64_t extent);

/// Inputs: x.
class Pad final : public LayerOf<Pad, PadAttributes> {
 public:
  static constexpr std::string_view kType = "Pad";
  explicit Pad(PadAttributes attributes);

  LayerTraits traits() const override { return {.movement = Movement::selected}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
