// Which nodes of a graph compute in INT8, and with which scales.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/graph/graph.h"
#include "quant/quantization_plan.h"
#include "quant/quantize_graph.h"

namespace pipit::internal {

enum class Role {
  floating,  ///< computes in f32
  weighted,  ///< becomes a QConv
  add,
  product,
  function,  ///< an activation function
  average,
  moving,  ///< keeps integers as they are: max pool, Concat, Reshape, Transpose, Slice, Split, DepthToSpace
};

struct Roles {
  std::vector<Role> of_node;
  std::vector<float> scale;  ///< per value, that of all values that share it; 0: unknown
  int quantized = 0;         ///< nodes that compute in INT8
  int kept = 0;              ///< weighted ones that could but do not
};

/// What quantize_graph() says of them. Throws what it throws about names.
Roles choose_roles(const Graph& graph, const QuantizationPlan& plan);

/// The operands of a product as QMul takes them, the larger one first; nothing where it does not.
std::optional<std::pair<ValueId, ValueId>> factors(const Graph& graph, const Node& node);

}  // namespace pipit::internal
