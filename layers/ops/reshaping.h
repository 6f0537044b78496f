// Moving elements without changing them: Reshape, Transpose, DepthToSpace, Expand, Tile, Gather, ToLayout.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct ReshapeAttributes {
  Shape shape;  ///< the resolved output shape
};

/// Row-major reinterpretation (ONNX Reshape, Flatten, Squeeze, Unsqueeze; Identity when the shape is the
/// same). Inputs: x with as many elements.
class Reshape final : public LayerOf<Reshape, ReshapeAttributes> {
 public:
  static constexpr std::string_view kType = "Reshape";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayerPtr for_samples(std::int64_t samples) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  /// Where both are row_major or the order does not matter.
  bool is_view(const TensorDesc& input, const TensorDesc& output) const override;
};

struct TransposeAttributes {
  std::vector<std::int64_t> permutation;  ///< output dimension i is input dimension permutation[i]
};

/// Inputs: x. Reads and writes any layout; the layout pass gives the output the layout that makes the copy a
/// view where there is one (NHWC permutations around channels_last tensors).
class Transpose final : public LayerOf<Transpose, TransposeAttributes> {
 public:
  static constexpr std::string_view kType = "Transpose";
  explicit Transpose(TransposeAttributes attributes);

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  /// Where the permutation only renames what the layouts already order so.
  bool is_view(const TensorDesc& input, const TensorDesc& output) const override;
};

struct DepthToSpaceAttributes {
  std::int64_t block = 1;
  bool column_row_depth = false;  ///< ONNX mode CRD instead of DCR
  bool inverse = false;           ///< SpaceToDepth
};

/// Inputs: x [N, C, H, W].
class DepthToSpace final : public LayerOf<DepthToSpace, DepthToSpaceAttributes> {
 public:
  static constexpr std::string_view kType = "DepthToSpace";
  explicit DepthToSpace(DepthToSpaceAttributes attributes);

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

struct ExpandAttributes {
  Shape shape;  ///< the resolved output shape (input broadcast with ONNX's target)
};

/// Inputs: x, broadcastable to the shape.
class Expand final : public LayerOf<Expand, ExpandAttributes> {
 public:
  static constexpr std::string_view kType = "Expand";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::repeated}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayerPtr for_samples(std::int64_t samples) const override;
};

struct TileAttributes {
  std::vector<std::int64_t> repeats;  ///< per dimension
};

/// Inputs: x.
class Tile final : public LayerOf<Tile, TileAttributes> {
 public:
  static constexpr std::string_view kType = "Tile";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::repeated}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
};

struct GatherAttributes {
  std::int64_t axis = 0;
};

/// Inputs: data; indices (i32 or i64, negative from the end; out of range throws at run time). One row of indices that
/// are known leaves the data in any memory order (the layout pass).
class Gather final : public LayerOf<Gather, GatherAttributes> {
 public:
  static constexpr std::string_view kType = "Gather";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::repeated}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
};

/// indices[offset], i32 or i64.
std::int64_t index_at(const ConstTensorView& indices, std::int64_t offset);

/// indices[offset] as a position in [0, extent); throws Error when it is outside [-extent, extent).
std::int64_t gathered_position(const ConstTensorView& indices, std::int64_t offset, std::int64_t extent);

struct ToLayoutAttributes {
  Layout layout = Layout::channels_last;
};

/// Copies into another memory order; the logical tensor is unchanged. Made by the layout pass. Inputs: x.
class ToLayout final : public LayerOf<ToLayout, ToLayoutAttributes> {
 public:
  static constexpr std::string_view kType = "ToLayout";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::rearranged}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  /// A copy only where the two orders differ.
  bool is_view(const TensorDesc& input, const TensorDesc& output) const override;
};

}  // namespace pipit::internal
