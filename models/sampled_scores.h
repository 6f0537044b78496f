// What the end of a graph makes of made-up values: for what cannot be read off its layers.
#pragma once

#include <functional>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Bounds of a value's elements.
struct ValueRange {
  double low = 0;
  double high = 0;
};

/// Calls `take` with the first output, in f32, for random values instead of what the last layers with weights give (or
/// layers too far from the end), until it returns false or there were enough: within `bounds`, small and large in turn,
/// and always the same ones. Rounding to integers and to other floating-point types is left out. There are none where
/// the output comes from such a layer itself, where it or what it is made of is large, and where a layer does not run
/// on such values.
void sample_scores(const Graph& graph, const std::function<ValueRange(ValueId)>& bounds,
                   const std::function<bool(const Tensor&)>& take);

}  // namespace pipit::internal
