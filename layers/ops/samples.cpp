#include "layers/ops/samples.h"

#include <algorithm>

namespace pipit::internal {

bool sampled_exactly(const SampledInputs& inputs, std::initializer_list<std::size_t> positions) {
  for (std::size_t i = 0; i < inputs.descs.size(); ++i) {
    const bool expected = std::find(positions.begin(), positions.end(), i) != positions.end();
    if (inputs.descs[i] != nullptr && inputs.by_sample[i] != expected) return false;
  }
  return true;
}

bool broadcast_keeps_samples(const SampledInputs& inputs) {
  int rank = 0;
  for (const TensorDesc* desc : inputs.descs) rank = std::max(rank, desc->shape.rank());
  for (std::size_t i = 0; i < inputs.descs.size(); ++i) {
    const Shape& shape = inputs.descs[i]->shape;
    const bool extends = shape.rank() == rank && (inputs.by_sample[i] || shape[0] != 1);
    if (extends != inputs.by_sample[i]) return false;
  }
  return true;
}

}  // namespace pipit::internal
