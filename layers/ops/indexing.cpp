#include "layers/ops/indexing.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

Shape indexed_elements(const IndexedAttributes& attributes, const TensorDesc& data, const TensorDesc& indices,
                       std::string_view layer) {
  const int axis = normalize_axis(attributes.axis, data.shape.rank(), std::string(layer).c_str());
  bool fits = indices.shape.rank() == data.shape.rank();
  for (int d = 0; fits && d < data.shape.rank(); ++d) fits = d == axis || indices.shape[d] <= data.shape[d];
  if (!fits) {
    fail("{}: indices {} for data {}; expected as many dimensions, none but dimension {} larger", layer,
         indices.shape.str(), data.shape.str(), axis);
  }
  return indices.shape;
}

Shape indexed_tuples(const IndexedAttributes& attributes, const TensorDesc& data, const TensorDesc& indices,
                     std::string_view layer) {
  const int rank = indices.shape.rank();
  if (rank == 0) fail("{}: the indices are a scalar; expected tuples in the last dimension", layer);
  const std::int64_t batch = attributes.batch_dims;
  if (batch < 0 || batch >= rank || batch > data.shape.rank())
    fail("{}: {} batch dimensions of data {} and indices {}", layer, batch, data.shape.str(),
         indices.shape.str());
  for (int d = 0; d < batch; ++d) {
    if (data.shape[d] != indices.shape[d]) {
      fail("{}: data {} and indices {} differ in dimension {} of {} that they share", layer, data.shape.str(),
           indices.shape.str(), d, batch);
    }
  }
  const std::int64_t positions = indices.shape[rank - 1];
  if (positions > data.shape.rank() - batch) {
    fail("{}: tuples of {} indices for data {} with {} batch dimensions", layer, positions, data.shape.str(),
         batch);
  }
  const auto named = indices.shape.dims();
  const auto rest = data.shape.dims().subspan(static_cast<std::size_t>(batch + positions));
  std::vector<std::int64_t> dims(named.begin(), named.end() - 1);
  dims.insert(dims.end(), rest.begin(), rest.end());
  return Shape(dims);
}

bool shares_samples(const IndexedAttributes& attributes, const Shape& data, const Shape& indices) {
  if (attributes.form == IndexForm::tuples) return attributes.batch_dims > 0;
  return normalize_axis(attributes.axis, data.rank(), "GatherIndexed") > 0 && data[0] == indices[0];
}

std::string form_text(const IndexedAttributes& attributes) {
  return attributes.form == IndexForm::elements
             ? fmt::format("elements axis {}", attributes.axis)
             : fmt::format("tuples, {} batch dimensions", attributes.batch_dims);
}

bool keeps_samples_along(std::int64_t axis, const SampledInputs& inputs, const char* layer) {
  return sampled_exactly(inputs, {0}) && normalize_axis(axis, inputs.descs[0]->shape.rank(), layer) > 0;
}

}  // namespace

Shape indexed_shape(const IndexedAttributes& attributes, const TensorDesc& data, const TensorDesc& indices,
                    std::string_view layer) {
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64)
    fail("{}: the indices are {}, expected i32 or i64", layer, dtype_name(indices.dtype));
  return attributes.form == IndexForm::elements ? indexed_elements(attributes, data, indices, layer)
                                                : indexed_tuples(attributes, data, indices, layer);
}

std::vector<TensorDesc> GatherIndexed::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  return {{indexed_shape(attributes_, *inputs[0], *inputs[1], kType), inputs[0]->dtype}};
}

Work GatherIndexed::work(std::span<const TensorDesc* const> /*inputs*/,
                         std::span<const TensorDesc> /*outputs*/) const {
  return {0, 0};  // that is up to the indices
}

bool GatherIndexed::is_batch_independent(const SampledInputs& inputs) const {
  const Shape& indices = inputs.descs[1]->shape;
  if (sampled_exactly(inputs, {0, 1})) return shares_samples(attributes_, inputs.descs[0]->shape, indices);
  return attributes_.form == IndexForm::tuples && attributes_.batch_dims == 0 && indices.rank() > 1 &&
         sampled_exactly(inputs, {1});
}

std::string GatherIndexed::summary() const {
  return form_text(attributes_);
}

std::vector<TensorDesc> ScatterIndexed::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 3);
  const TensorDesc& data = *inputs[0];
  check_operand(*inputs[2], indexed_shape(attributes_.indexed, data, *inputs[1], kType), data.dtype, kType,
                "updates");
  if (attributes_.reduction != ScatterReduction::none && data.dtype == DType::boolean)
    fail("{}: a reduction of bool", kType);
  return {{data.shape, data.dtype}};
}

bool ScatterIndexed::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 1, 2}) &&
         shares_samples(attributes_.indexed, inputs.descs[0]->shape, inputs.descs[1]->shape);
}

std::string ScatterIndexed::summary() const {
  static constexpr const char* kReductions[] = {"", " add", " mul", " min", " max"};
  return form_text(attributes_.indexed) + kReductions[static_cast<std::size_t>(attributes_.reduction)];
}

std::vector<TensorDesc> TopK::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (x.dtype == DType::boolean) fail("TopK: bool has no order");
  const int axis = normalize_axis(attributes_.axis, x.shape.rank(), "TopK");
  if (attributes_.k < 0 || attributes_.k > x.shape[axis])
    fail("TopK: k is {} for dimension {} of {}", attributes_.k, axis, x.shape.str());
  const Shape shape = x.shape.with(axis, attributes_.k);
  return {{shape, x.dtype}, {shape, DType::i64}};
}

bool TopK::is_batch_independent(const SampledInputs& inputs) const {
  return keeps_samples_along(attributes_.axis, inputs, "TopK");
}

std::string TopK::summary() const {
  return fmt::format("{} {} axis {}", attributes_.k, attributes_.largest ? "largest" : "smallest",
                     attributes_.axis);
}

std::vector<TensorDesc> CumSum::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (x.dtype == DType::boolean) fail("CumSum: not defined on bool");
  normalize_axis(attributes_.axis, x.shape.rank(), "CumSum");
  return {{x.shape, x.dtype}};
}

bool CumSum::is_batch_independent(const SampledInputs& inputs) const {
  return keeps_samples_along(attributes_.axis, inputs, "CumSum");
}

std::string CumSum::summary() const {
  return fmt::format("axis {}{}{}", attributes_.axis, attributes_.exclusive ? " exclusive" : "",
                     attributes_.reverse ? " reverse" : "");
}

}  // namespace pipit::internal
