// What layers say of the samples of a batch (Layer::is_batch_independent).
#pragma once

#include <initializer_list>

#include "engine/graph/layer.h"

namespace pipit::internal {

/// Whether of the inputs that are present exactly those at `positions` are by sample.
bool sampled_exactly(const SampledInputs& inputs, std::initializer_list<std::size_t> positions);

/// For element-wise layers that broadcast: whether dimension 0 of all inputs that are by sample is that of the output,
/// and the others do not extend along it.
bool broadcast_keeps_samples(const SampledInputs& inputs);

}  // namespace pipit::internal
