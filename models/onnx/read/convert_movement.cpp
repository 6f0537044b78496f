// Transpose, Expand, Tile, Gather, DepthToSpace and SpaceToDepth.
#include "layers/ops/reshaping.h"

#include <algorithm>
#include <numeric>

#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> convert_transpose(NodeContext& node) {
  const auto rank = static_cast<std::size_t>(node.input_shape(0).rank());
  TransposeAttributes attributes;
  if (auto permutation = node.attributes().integers("perm")) {
    if (permutation->size() != rank) {
      fail("attribute 'perm' has {} dimensions, input {} has {}", permutation->size(),
           node.input_shape(0).str(), rank);
    }
    attributes.permutation = *std::move(permutation);
  } else {
    attributes.permutation.resize(rank);
    std::iota(attributes.permutation.rbegin(), attributes.permutation.rend(), 0);
  }
  return {node.emit<Transpose>({node.input(0)}, std::move(attributes))};
}

std::vector<ValueId> convert_expand(NodeContext& node) {
  const Shape target = shape_from_onnx(node.constant_integers(1, "shape"));
  return {
      node.emit<Expand>({node.input(0)}, ExpandAttributes{broadcast_shapes(node.input_shape(0), target)})};
}

std::vector<ValueId> convert_tile(NodeContext& node) {
  return {node.emit<Tile>({node.input(0)}, TileAttributes{node.constant_integers(1, "repeats")})};
}

std::vector<ValueId> convert_gather(NodeContext& node) {
  const int rank = node.input_shape(0).rank() + node.input_shape(1).rank() - 1;
  if (rank > kMaxRank) fail_unsupported("{} dimensions; at most {} are supported", rank, kMaxRank);
  const GatherAttributes attributes{node.attributes().integer("axis", 0)};
  return {node.emit<Gather>({node.input(0), node.input(1)}, attributes)};
}

// SpaceToDepth has the attribute since opset 28.
bool reads_column_row_depth(NodeContext& node) {
  const std::string mode = node.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") fail("attribute 'mode' is '{}', expected DCR or CRD", mode);
  return mode == "CRD";
}

std::vector<ValueId> convert_depth_to_space(NodeContext& node) {
  DepthToSpaceAttributes attributes{.column_row_depth = reads_column_row_depth(node)};
  attributes.block = node.attributes().required_integer("blocksize");
  return {node.emit<DepthToSpace>({node.input(0)}, attributes)};
}

std::vector<ValueId> convert_space_to_depth(NodeContext& node) {
  DepthToSpaceAttributes attributes{.column_row_depth = reads_column_row_depth(node), .inverse = true};
  attributes.block = node.attributes().required_integer("blocksize");
  return {node.emit<DepthToSpace>({node.input(0)}, attributes)};
}

constexpr Operator kMovementOperators[] = {
    {"DepthToSpace", 1, kLastOpset, 1, 1, convert_depth_to_space},
    {"Expand", 8, kLastOpset, 2, 2, convert_expand},
    {"Gather", 1, kLastOpset, 2, 2, convert_gather},
    {"SpaceToDepth", 1, kLastOpset, 1, 1, convert_space_to_depth},
    {"Tile", 6, kLastOpset, 2, 2, convert_tile},
    {"Transpose", 1, kLastOpset, 1, 1, convert_transpose},
};

}  // namespace

std::span<const Operator> movement_operators() {
  return kMovementOperators;
}

}  // namespace pipit::internal::onnx
