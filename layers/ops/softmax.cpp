#include "layers/ops/softmax.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

std::vector<TensorDesc> Softmax::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  check_float(x, kType, "x");
  // The flattened form may also name the end: one group per element (ONNX allows axis = rank up to opset 10).
  if (!attributes_.flatten_from_axis || attributes_.axis != x.shape.rank()) {
    normalize_axis(attributes_.axis, x.shape.rank(), "Softmax");
  }
  return {{x.shape, x.dtype, Layout::row_major}};
}

bool Softmax::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && softmax_groups(attributes_, inputs.descs[0]->shape).begin > 0;
}

SoftmaxGroups softmax_groups(const SoftmaxAttributes& attributes, const Shape& shape) {
  const bool flatten = attributes.flatten_from_axis;
  const int rank = shape.rank();
  const int axis =
      flatten && attributes.axis == rank ? rank : normalize_axis(attributes.axis, rank, "Softmax");
  return {axis, flatten ? rank : axis + 1};
}

LayoutPreference Softmax::layout_preference() const {
  return attributes_.flatten_from_axis && attributes_.axis != -1 ? LayoutPreference::row_major
                                                                 : LayoutPreference::any;
}

std::string Softmax::summary() const {
  return fmt::format("{}axis {}{}", attributes_.log ? "log " : "", attributes_.axis,
                     attributes_.flatten_from_axis ? " flattened" : "");
}

}  // namespace pipit::internal
