#include "layers/cast.h"

#include "layers/operands.h"

namespace pipit {

Cast::Cast(CastAttributes attributes) : attributes_(attributes) {}

std::vector<TensorDesc> Cast::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  return {{inputs[0]->shape, attributes_.to}};
}

std::string Cast::summary() const {
  return "to " + std::string(dtype_name(attributes_.to));
}

}  // namespace pipit
