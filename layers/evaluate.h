// Evaluates one layer on constants with its reference kernel: constant folding, and the oracle of tests.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/graph/layer.h"

namespace pipit::internal {

/// Outputs of `layer` on host tensors (null for absent optional inputs), row_major. Throws what infer and the
/// reference kernel throw, and UnsupportedError when the reference refuses the dtypes.
std::vector<Tensor> evaluate(const Layer& layer, std::span<const std::shared_ptr<const Tensor>> inputs);

}  // namespace pipit::internal
