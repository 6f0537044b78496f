#include "sparsity/columns.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

Columns::Columns(const Graph& graph, const Node& node) {
  const Shape weights = real_weights(graph, node).shape;
  const Shape& x = graph.value(node.inputs[0]).desc.shape;
  const Shape& y = graph.value(node.outputs[0]).desc.shape;
  const auto* conv = layer_if<Conv>(node);
  convolution_ = conv != nullptr;
  groups_ = convolution_ ? static_cast<std::size_t>(conv->attributes().groups) : 1;
  all_outputs_ = static_cast<std::size_t>(weights[0]);
  outputs_ = all_outputs_ / groups_;
  depth_ = static_cast<std::size_t>(weights.elements() / weights[0]);
  positions_ = y.elements() / weights[0];
  if (!convolution_) return;
  const Window window = as_3d(conv->attributes().window);
  channels_ = x[1];
  const int spatial = x.rank() - 2;
  for (int d = 0; d < spatial; ++d) {
    in_[static_cast<std::size_t>(3 - spatial + d)] = x[2 + d];
    out_[static_cast<std::size_t>(3 - spatial + d)] = y[2 + d];
  }
  kernel_ = window.kernel;
  stride_ = window.stride;
  dilation_ = window.dilation;
  pad_ = window.pad_begin;
  places_ = out_[0] * out_[1] * out_[2];
}

void Columns::read(const float* input, std::int64_t position, std::size_t group, float* column) const {
  const auto depth = static_cast<std::int64_t>(depth_);
  if (!convolution_) {
    std::copy_n(input + position * depth, depth, column);
    return;
  }
  const std::int64_t place = position % places_;
  const std::int64_t taps = kernel_[0] * kernel_[1] * kernel_[2];
  const std::int64_t in_group = depth / taps;
  const std::int64_t plane = in_[0] * in_[1] * in_[2];
  const float* sample =
      input + (position / places_ * channels_ + static_cast<std::int64_t>(group) * in_group) * plane;
  const std::array<std::int64_t, 3> start{place / (out_[1] * out_[2]) * stride_[0] - pad_[0],
                                          place / out_[2] % out_[1] * stride_[1] - pad_[1],
                                          place % out_[2] * stride_[2] - pad_[2]};
  std::int64_t tap = 0;
  for (std::int64_t a = 0; a < kernel_[0]; ++a) {
    for (std::int64_t b = 0; b < kernel_[1]; ++b) {
      for (std::int64_t c = 0; c < kernel_[2]; ++c, ++tap) {
        const std::int64_t d = start[0] + a * dilation_[0];
        const std::int64_t h = start[1] + b * dilation_[1];
        const std::int64_t w = start[2] + c * dilation_[2];
        const bool inside = d >= 0 && d < in_[0] && h >= 0 && h < in_[1] && w >= 0 && w < in_[2];
        const float* from = sample + (d * in_[1] + h) * in_[2] + w;
        for (std::int64_t i = 0; i < in_group; ++i) column[i * taps + tap] = inside ? from[i * plane] : 0.0F;
      }
    }
  }
}

std::size_t Columns::offset(std::int64_t position, std::size_t output) const {
  const auto at = static_cast<std::size_t>(position);
  if (!convolution_) return at * all_outputs_ + output;
  const auto places = static_cast<std::size_t>(places_);
  return (at / places * all_outputs_ + output) * places + at % places;
}

std::vector<std::int64_t> sample_positions(std::int64_t positions, std::int64_t wanted, std::uint64_t seed,
                                           std::uint64_t run) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(positions));
  std::iota(all.begin(), all.end(), 0);
  if (wanted >= positions) return all;
  std::seed_seq sequence{seed & 0xffffffffU, seed >> 32U, run & 0xffffffffU, run >> 32U};
  std::mt19937_64 random(sequence);
  for (std::size_t i = 0; i < static_cast<std::size_t>(wanted); ++i)
    std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(static_cast<std::size_t>(wanted));
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::int64_t> sample_positions_of_each(std::int64_t positions, std::int64_t samples,
                                                   std::int64_t wanted, std::uint64_t seed,
                                                   std::uint64_t run) {
  const std::int64_t own = positions / samples;
  std::vector<std::int64_t> all;
  for (std::int64_t s = 0; s < samples; ++s) {
    const std::uint64_t number = run * static_cast<std::uint64_t>(samples) + static_cast<std::uint64_t>(s);
    for (const std::int64_t position : sample_positions(own, wanted, seed, number))
      all.push_back(s * own + position);
  }
  return all;
}

}  // namespace pipit::internal
