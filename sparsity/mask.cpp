#include "sparsity/mask.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal {

namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t taps_of(const Shape& shape) {
  return shape.elements() / (shape[0] * shape[1]);
}

// The group of weight (output, channel of the group, tap).
std::int64_t group_of(const LayerMask& mask, const Shape& shape, std::int64_t groups, std::int64_t o,
                      std::int64_t i, std::int64_t tap) {
  switch (mask.mode) {
    case MaskMode::channel:
      return o;
    case MaskMode::block:
      return o / mask.channels;
    case MaskMode::input: {
      const std::int64_t panel = mask.panel == 0 ? shape[0] / groups : mask.panel;
      return o / panel * divide_up(shape[1], mask.channels) + i / mask.channels;
    }
    case MaskMode::k:
      break;
  }
  const std::int64_t panel = mask.panel == 0 ? shape[0] : mask.panel;
  return (o / panel * taps_of(shape) + tap) * divide_up(shape[1], mask.channels) + i / mask.channels;
}

}  // namespace

std::size_t mark_of(const LayerMask& mask, const Shape& shape, std::int64_t groups, std::int64_t output,
                    std::int64_t input, std::int64_t tap) {
  return static_cast<std::size_t>(group_of(mask, shape, groups, output, input, tap));
}

std::string_view mask_mode_name(MaskMode mode) {
  switch (mode) {
    case MaskMode::channel:
      return "channel";
    case MaskMode::block:
      return "block";
    case MaskMode::input:
      return "input";
    case MaskMode::k:
      break;
  }
  return "k";
}

std::size_t mask_size(const LayerMask& mask, const Shape& shape, std::int64_t groups) {
  if (shape.rank() < 2 || shape.elements() == 0 || groups < 1 || shape[0] % groups != 0)
    fail("weights {} in {} groups cannot be pruned", shape.str(), groups);
  const bool panels = mask.mode == MaskMode::k || mask.mode == MaskMode::input;
  const bool grouped = panels || mask.mode == MaskMode::block;
  if (mask.channels < 1 || (!grouped && mask.channels != 1))
    fail("'{}': groups of {} channels in mode {}", mask.node, mask.channels, mask_mode_name(mask.mode));
  if (mask.panel < 0 || (!panels && mask.panel != 0))
    fail("'{}': panels of {} outputs in mode {}", mask.node, mask.panel, mask_mode_name(mask.mode));
  const std::int64_t last_tap = taps_of(shape) - 1;
  return static_cast<std::size_t>(group_of(mask, shape, groups, shape[0] - 1, shape[1] - 1, last_tap) + 1);
}

std::vector<std::uint8_t> removed_weights(const LayerMask& mask, const Shape& shape, std::int64_t groups) {
  const std::size_t size = mask_size(mask, shape, groups);
  if (mask.removed.size() != size)
    fail("'{}': a mask of {} marks, expected {} for weights {}", mask.node, mask.removed.size(), size,
         shape.str());
  std::vector<std::uint8_t> removed;
  removed.reserve(static_cast<std::size_t>(shape.elements()));
  const std::int64_t taps = taps_of(shape);
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      for (std::int64_t tap = 0; tap < taps; ++tap)
        removed.push_back(mask.removed[static_cast<std::size_t>(group_of(mask, shape, groups, o, i, tap))]);
    }
  }
  return removed;
}

std::vector<std::uint8_t> removed_outputs(const LayerMask& mask, const Shape& shape, std::int64_t groups) {
  std::vector<std::uint8_t> removed(static_cast<std::size_t>(shape[0]), 0);
  if (mask.mode != MaskMode::channel && mask.mode != MaskMode::block) return removed;
  for (std::size_t o = 0; o < removed.size(); ++o) {
    const std::int64_t group = group_of(mask, shape, groups, static_cast<std::int64_t>(o), 0, 0);
    removed[o] = mask.removed.at(static_cast<std::size_t>(group));
  }
  return removed;
}

std::vector<std::uint8_t> zero_rows(std::span<const float> weights, const Shape& shape, std::int64_t groups) {
  constexpr std::int64_t kPanel = 16;
  const std::int64_t depth = shape.elements() / shape[0];
  const std::int64_t outputs = shape[0] / groups;
  std::vector<std::uint8_t> zeros(weights.size(), 0);
  for (std::int64_t first = 0; first < shape[0];) {
    const std::int64_t last = std::min(first + kPanel, (first / outputs + 1) * outputs);
    for (std::int64_t k = 0; k < depth; ++k) {
      bool zero = true;
      for (std::int64_t o = first; o < last && zero; ++o)
        zero = weights[static_cast<std::size_t>(o * depth + k)] == 0;
      for (std::int64_t o = first; o < last && zero; ++o) zeros[static_cast<std::size_t>(o * depth + k)] = 1;
    }
    first = last;
  }
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    const auto row = weights.subspan(static_cast<std::size_t>(o * depth), static_cast<std::size_t>(depth));
    if (std::all_of(row.begin(), row.end(), [](float w) { return w == 0; }))
      std::fill_n(zeros.begin() + o * depth, depth, 1);
  }
  return zeros;
}

Graph apply_mask(const Graph& graph, const PruningMask& mask) {
  std::map<std::string, NewWeights> replaced;
  for (const LayerMask& layer : mask) {
    const Node& node = weighted_node(graph, layer.node);
    const auto found = replaced.try_emplace(layer.node);
    NewWeights& made = found.first->second;
    if (found.second) made = weights_of(graph, node);
    const auto* conv = layer_if<Conv>(node);
    const std::int64_t groups = conv == nullptr ? 1 : conv->attributes().groups;
    const std::vector<std::uint8_t> weights = removed_weights(layer, made.weights.shape(), groups);
    const std::vector<std::uint8_t> outputs = removed_outputs(layer, made.weights.shape(), groups);
    const std::span<float> values = made.weights.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (weights[i] != 0) values[i] = 0;
    }
    for (std::size_t o = 0; o < made.bias.size(); ++o) {
      if (outputs[o] != 0) made.bias[o] = 0;
    }
  }
  return replace_weights(graph, std::move(replaced));
}

}  // namespace pipit::internal
