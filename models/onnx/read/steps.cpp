#include "models/onnx/read/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "layers/common/dispatch.h"
#include "layers/common/scalar.h"
#include "layers/ops/cast.h"
#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"

namespace pipit::internal::onnx {

std::string Steps::next_name(std::string_view what) {
  return fmt::format("{}_{}", what, ++count_);
}

std::vector<ValueId> Steps::emit(LayerPtr layer, std::vector<ValueId> inputs) {
  const std::string name = next_name(layer->type());
  return node_.emit_all(std::move(layer), std::move(inputs), name.c_str());
}

ValueId Steps::unary(ValueId x, const UnaryAttributes& attributes) {
  return add<Unary>({x}, attributes);
}

ValueId Steps::binary(BinaryKind kind, ValueId a, ValueId b) {
  return add<Binary>({a, b}, BinaryAttributes{kind});
}

ValueId Steps::where(ValueId condition, ValueId a, ValueId b) {
  return add<Where>({condition, a, b});
}

ValueId Steps::reduce(ReduceKind kind, ValueId x, std::vector<std::int64_t> axes, bool keep_dims) {
  if (axes.empty()) return x;
  return add<Reduce>({x}, ReduceAttributes{kind, std::move(axes), keep_dims});
}

ValueId Steps::matmul(ValueId a, ValueId b) {
  return add<MatMul>({a, b});
}

ValueId Steps::cast(ValueId x, DType type) {
  return dtype(x) == type ? x : add<Cast>({x}, CastAttributes{type});
}

ValueId Steps::reshape(ValueId x, const Shape& to) {
  return shape(x) == to ? x : add<Reshape>({x}, ReshapeAttributes{to});
}

ValueId Steps::transpose(ValueId x, std::vector<std::int64_t> permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return add<Transpose>({x}, TransposeAttributes{std::move(permutation)});
}

ValueId Steps::slice(ValueId x, int axis, std::int64_t begin, std::int64_t end) {
  if (begin == 0 && end == shape(x)[axis]) return x;
  return add<Slice>({x}, SliceAttributes{{begin}, {end}, {axis}, {1}});
}

ValueId Steps::concat(const std::vector<ValueId>& inputs, std::int64_t axis) {
  if (inputs.size() == 1) return inputs[0];
  return add<Concat>(inputs, ConcatAttributes{axis});
}

ValueId Steps::number(DType type, double value, const Shape& shape) {
  Tensor tensor = node_.allocate(TensorDesc{shape, type});
  with_dtype(type, [&]<typename T>(std::type_identity<T>) {
    std::ranges::fill(tensor.values<T>(), saturate_cast<T>(value));
  });
  return constant(std::move(tensor));
}

ValueId Steps::iota(std::int64_t count, int axis, int rank, std::int64_t first) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank), 1);
  dims.at(static_cast<std::size_t>(axis)) = count;
  Tensor tensor = node_.allocate(TensorDesc{Shape(dims), DType::i64});
  const std::span<std::int64_t> values = tensor.values<std::int64_t>();
  std::iota(values.begin(), values.end(), first);
  return constant(std::move(tensor));
}

ValueId Steps::constant(Tensor tensor) {
  const std::string name = next_name("constant");
  return node_.add_constant(std::move(tensor), name.c_str());
}

ValueId root_mean_square_normalized(Steps& steps, ValueId x, ValueId scale, std::int64_t axis,
                                    float epsilon) {
  const LayerNormAttributes attributes{.axis = axis, .epsilon = epsilon, .rms = true};
  const Shape shape = steps.shape(x);
  const int inner =
      shape.rank() - normalize_axis(axis, shape.rank(), "a normalization by the root mean square");
  if (steps.shape(scale).rank() <= inner) return steps.node().emit<LayerNorm>({x, scale}, attributes);
  const ValueId normalized = steps.add<LayerNorm>({x}, attributes);
  return steps.node().emit<Binary>({normalized, scale}, BinaryAttributes{BinaryKind::mul});
}

}  // namespace pipit::internal::onnx
