// Layers whose positions are data or an order: GatherIndexed and ScatterIndexed, TopK, CumSum.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

/// How indices name elements of a tensor.
enum class IndexForm : std::uint8_t {
  elements,  ///< one index per element, along one axis; the other positions are those of the index itself
  tuples,    ///< the last dimension of the indices holds the first positions of an element or a slice
};

struct IndexedAttributes {
  IndexForm form = IndexForm::elements;
  std::int64_t axis = 0;        ///< of elements
  std::int64_t batch_dims = 0;  ///< of tuples: leading dimensions that data and indices share
};

/// The shape of what the indices name in the data. Throws Error where they do not fit, with `layer` in the message.
Shape indexed_shape(const IndexedAttributes& attributes, const TensorDesc& data, const TensorDesc& indices,
                    std::string_view layer);

/// ONNX GatherElements and GatherND. Inputs: data (any type); indices (i32 or i64, negative from the end; out of range
/// throws at run time).
class GatherIndexed final : public LayerOf<GatherIndexed, IndexedAttributes> {
 public:
  static constexpr std::string_view kType = "GatherIndexed";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.movement = Movement::repeated}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  std::string summary() const override;
};

/// What becomes of an element that is there and one that is written over it.
enum class ScatterReduction : std::uint8_t { none, add, mul, min, max };

struct ScatterIndexedAttributes {
  IndexedAttributes indexed;
  ScatterReduction reduction = ScatterReduction::none;
};

/// ONNX ScatterElements and ScatterND: the data with elements replaced, in the order of the updates, so that of several
/// for one element the last one counts. Inputs: data; indices as above; updates, of the shape that the indices name and
/// the data's type. Reductions are not defined on bool; integers wrap; min and max are NaN if either is.
class ScatterIndexed final : public LayerOf<ScatterIndexed, ScatterIndexedAttributes> {
 public:
  static constexpr std::string_view kType = "ScatterIndexed";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  std::string summary() const override;
};

struct TopKAttributes {
  std::int64_t axis = -1;
  std::int64_t k = 1;
  bool largest = true;
};

/// ONNX TopK. Inputs: x. Outputs: the k largest (smallest) elements along `axis`, in this order, and their positions
/// (i64). Of equal ones the first comes first. NaN counts as larger than any number.
class TopK final : public LayerOf<TopK, TopKAttributes> {
 public:
  static constexpr std::string_view kType = "TopK";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

struct CumSumAttributes {
  std::int64_t axis = 0;
  bool exclusive = false;  ///< the element itself does not count
  bool reverse = false;    ///< from the end
};

/// ONNX CumSum. Inputs: x, not bool. Floating-point sums accumulate in double, integers wrap.
class CumSum final : public LayerOf<CumSum, CumSumAttributes> {
 public:
  static constexpr std::string_view kType = "CumSum";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
