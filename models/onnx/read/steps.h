// What a converter writes of an operator that is several layers.
#pragma once

#include <string>
#include <vector>

#include "layers/ops/binary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/node_context.h"

namespace pipit::internal::onnx {

/// Adds layers to the graph, each with a name of its own. Layers that would do nothing are left out: the result is x.
class Steps {
 public:
  explicit Steps(NodeContext& node) : node_(node) {}

  NodeContext& node() const { return node_; }
  const Shape& shape(ValueId id) const { return node_.desc(id).shape; }
  DType dtype(ValueId id) const { return node_.desc(id).dtype; }

  template <typename L, typename... Args>
  ValueId add(const std::vector<ValueId>& inputs, Args&&... args) {
    return emit(std::make_shared<L>(std::forward<Args>(args)...), inputs).at(0);
  }
  std::vector<ValueId> emit(LayerPtr layer, std::vector<ValueId> inputs);

  ValueId unary(ValueId x, const UnaryAttributes& attributes);
  ValueId binary(BinaryKind kind, ValueId a, ValueId b);
  /// a of a condition, b elsewhere.
  ValueId where(ValueId condition, ValueId a, ValueId b);
  ValueId reduce(ReduceKind kind, ValueId x, std::vector<std::int64_t> axes, bool keep_dims = true);
  ValueId matmul(ValueId a, ValueId b);
  ValueId cast(ValueId x, DType type);
  ValueId reshape(ValueId x, const Shape& shape);
  ValueId transpose(ValueId x, std::vector<std::int64_t> permutation);
  /// Positions [begin, end) of one dimension.
  ValueId slice(ValueId x, int axis, std::int64_t begin, std::int64_t end);
  ValueId concat(const std::vector<ValueId>& inputs, std::int64_t axis);

  /// A scalar, or a tensor filled with one number.
  ValueId number(DType type, double value, const Shape& shape = {});
  /// i64, first, first + 1, ... along `axis` of a tensor of `rank` dimensions whose other extents are 1.
  ValueId iota(std::int64_t count, int axis = 0, int rank = 1, std::int64_t first = 0);
  ValueId constant(Tensor tensor);

 private:
  std::string next_name(std::string_view what);

  NodeContext& node_;
  int count_ = 0;
};

/// x / sqrt(mean of squares + epsilon) over the dimensions from `axis` on, times the scale: what the node computes.
ValueId root_mean_square_normalized(Steps& steps, ValueId x, ValueId scale, std::int64_t axis, float epsilon);

}  // namespace pipit::internal::onnx
