// What convolutions and matrix products do with channels.
#include <algorithm>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_walk.h"

namespace pipit::internal {

namespace {

constexpr const char* kComputedWeights = "its weights are not constant";

bool is_padded(const Window& window) {
  const auto any = [](const auto& pads) {
    return std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p != 0; });
  };
  return any(window.pad_begin) || any(window.pad_end);
}

// The channels that are read; without a place in the weights for them they stay. A bias can take the constant that a
// removed one is, if every output sees it through all taps.
void read(ChannelWalk& walk, const ValueChannels& x, bool takes_constants) {
  if (!x.rest || takes_constants) return;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x.rest_of(i) != 0)
      walk.keep((*x.groups)[i], "without its weights the channel is a constant, which no bias here can take");
  }
}

std::vector<int> new_channels(ChannelWalk& walk, std::int64_t count) {
  std::vector<int> channels;
  for (std::int64_t i = 0; i < count; ++i) channels.push_back(walk.add());
  return channels;
}

// The outputs of a convolution of several groups. Whole groups go, with their inputs, where that leaves more choice
// (depthwise convolutions); elsewhere the same channel of every group.
std::vector<int> grouped_channels(ChannelWalk& walk, const Node& node, std::int64_t groups) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  const bool plain = walk.is_plain(node.inputs[0]);
  const Shape& w = walk.shape(node.inputs[1]);
  const std::int64_t inputs = w[1] * groups;
  const std::int64_t outputs_each = w[0] / groups;
  const bool whole = groups >= outputs_each;
  const std::vector<int> own = new_channels(walk, whole ? groups : outputs_each);
  std::vector<int> channels;
  for (std::int64_t o = 0; o < w[0]; ++o)
    channels.push_back(own[static_cast<std::size_t>(whole ? o / outputs_each : o % outputs_each)]);
  for (std::int64_t i = 0; i < inputs; ++i) {
    const int channel = plain ? (*x.groups)[static_cast<std::size_t>(i)] : -1;
    if (whole) {
      walk.tie(channel, own[static_cast<std::size_t>(i / w[1])]);
    } else if (plain) {
      walk.tie(channel, (*x.groups)[static_cast<std::size_t>(i % w[1])]);
    }
  }
  return channels;
}

void tie_conv(ChannelWalk& walk, const Node& node, const ConvAttributes& attributes) {
  const ValueId residual = ChannelWalk::input(node, 3);
  if (!has_constant_weights(walk.graph(), node)) return walk.keep_inputs(node, kComputedWeights);
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!walk.is_plain(node.inputs[0])) walk.keep_all(x, "its input's channels are not dimension 1");
  const std::int64_t outputs = walk.shape(node.inputs[1])[0];
  const bool whole = attributes.groups > 1 && attributes.groups >= outputs / attributes.groups;
  if (!whole) read(walk, x, !is_padded(attributes.window));
  ValueChannels y = walk.made(1, attributes.groups == 1 ? new_channels(walk, outputs)
                                                        : grouped_channels(walk, node, attributes.groups));
  const ValueChannels& r = walk.of(residual);
  if (residual != kNoValue && !walk.is_plain(residual)) {
    walk.keep_all(r, "its channels are not dimension 1");
    walk.keep_all(y, "added to channels that stay");
  } else if (residual != kNoValue) {
    walk.tie_all(y, r);
  }
  const Clamp& clamp = attributes.activation;
  walk.set(node.outputs[0], walk.mapped(y, 1, [&](std::size_t i, double) {
    return clamp(residual == kNoValue ? 0.0 : r.rest_of(i));
  }));
}

void tie_product(ChannelWalk& walk, const Node& node, const Gemm* gemm) {
  if (!has_constant_weights(walk.graph(), node)) return walk.keep_inputs(node, kComputedWeights);
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (x.known() && x.axis != walk.shape(node.inputs[0]).rank() - 1)
    walk.keep_all(x, "its input's channels are not the last dimension");
  read(walk, x, gemm != nullptr);
  const Shape& y = walk.shape(node.outputs[0]);
  const ValueChannels channels = walk.made(y.rank() - 1, new_channels(walk, y[y.rank() - 1]));
  const Clamp clamp = gemm != nullptr ? gemm->attributes().activation : Clamp{};
  walk.set(node.outputs[0],
           walk.mapped(channels, channels.axis, [&](std::size_t, double) { return clamp(0.0); }));
}

}  // namespace

bool tie_weighted_layer(ChannelWalk& walk, const Node& node) {
  if (const auto* conv = layer_if<Conv>(node)) {
    tie_conv(walk, node, conv->attributes());
  } else if (const auto* gemm = layer_if<Gemm>(node)) {
    tie_product(walk, node, gemm);
  } else if (layer_if<MatMul>(node) != nullptr) {
    tie_product(walk, node, nullptr);
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal
