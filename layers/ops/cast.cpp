#include "layers/ops/cast.h"

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

std::vector<TensorDesc> Cast::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  return {{inputs[0]->shape, attributes_.to}};
}

bool Cast::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string Cast::summary() const {
  return "to " + std::string(dtype_name(attributes_.to));
}

}  // namespace pipit::internal
