#include "quant/weight_only.h"

#include <algorithm>
#include <cmath>

#include "engine/platform/simd.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Below 2^22 adding and taking away 1.5 * 2^23 rounds to nearest, ties to even: a loop that vectorizes everywhere.
constexpr float kUnits = 12582912.0F;

PIPIT_INLINE inline float to_integer(float steps, float low, float high) {
  const float above = steps > low ? steps : low;
  const float inside = above < high ? above : high;
  return (inside + kUnits) - kUnits;
}

constexpr std::int64_t kLanes = 16;

PIPIT_INLINE inline double rounding_error(const float* weights, std::int64_t count, float scale, float low,
                                          float high) {
  const float inverse = 1.0F / scale;
  float sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float w = weights[i + lane];
      const float error = w - to_integer(w * inverse, low, high) * scale;
      sums[lane] += error * error;
    }
  }
  for (; i < count; ++i) {
    const float error = weights[i] - to_integer(weights[i] * inverse, low, high) * scale;
    sums[0] += error * error;
  }
  double sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

struct Levels {
  float low;
  float high;
};
constexpr Levels levels_of(int bits) {
  return bits == 8 ? Levels{-127, 127} : Levels{-8, 7};
}

// The value of the largest magnitude.
float extreme(std::span<const float> weights) {
  float most = 0;
  for (const float w : weights) {
    if (!std::isfinite(w)) fail("a weight is {}", w);
    if (std::abs(w) > std::abs(most)) most = w;
  }
  return most;
}

float scale_of(std::span<const float> group, int bits) {
  const float most = extreme(group);
  const float largest = std::abs(most) / 127.0F;
  // What f32 cannot divide by is as good as 0.
  if (!std::isnormal(largest)) return 1;
  if (bits == 8) return largest;
  const Levels range = levels_of(bits);
  const auto count = static_cast<std::int64_t>(group.size());
  float best = std::abs(most) / 7.0F;
  double least = INFINITY;
  for (int step = 0; step <= 4; ++step) {
    const float shrink = 1.0F - 0.05F * static_cast<float>(step);
    for (const float scale : {shrink * std::abs(most) / 7.0F, shrink * most / -8.0F}) {
      const double error = simd<rounding_error>(group.data(), count, scale, range.low, range.high);
      if (error < least) {
        least = error;
        best = scale;
      }
    }
  }
  return best;
}

// Makes the errors of a group add up to nearly nothing: most inputs are positive (after a ReLU), so that the sum of
// the errors weighs more than each of them. `carried` is the sum of the groups before, in real units, and then of this
// one too. Of the weights nearest to the middle between two integers, as many go to the other one as the sum asks for;
// no more than one in sixteen for the groups before, whose scales may be larger than this one can make up for.
void balance(const float* weights, float scale, Levels range, std::span<float> q, double& carried) {
  constexpr double kShare = 16;
  std::vector<float> errors(q.size());
  double own = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    errors[i] = weights[i] / scale - q[i];
    own += errors[i];
  }
  const double most_carried = static_cast<double>(q.size()) / kShare;
  const double flips = std::nearbyint(own + std::clamp(carried / scale, -most_carried, most_carried));
  const float step = flips < 0 ? -1.0F : 1.0F;
  for (std::size_t i = 0; i < q.size(); ++i) {
    // What may not or need not move is never the largest.
    errors[i] = q[i] + step >= range.low && q[i] + step <= range.high ? errors[i] * step : 0.0F;
  }
  for (double left = std::abs(flips); left > 0; --left) {
    const auto largest = std::max_element(errors.begin(), errors.end());
    if (!(*largest > 0)) break;
    q[static_cast<std::size_t>(largest - errors.begin())] += step;
    *largest = 0;
    own -= static_cast<double>(step);
  }
  carried += own * scale;
}

// One row of weights in the format, and its scales.
void store_row(const WeightFormat& format, std::span<const float> weights, std::byte* row, float* scales) {
  const auto depth = static_cast<std::int64_t>(weights.size());
  const std::int64_t group = format.group(depth);
  const Levels range = levels_of(format.bits);
  std::fill_n(row, format.row_bytes(depth), std::byte{0});
  std::vector<float> q;
  double carried = 0;
  for (std::int64_t begin = 0; begin < depth; begin += group) {
    const std::span<const float> values = weights.subspan(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(group, depth - begin)));
    const float scale = scale_of(values, format.bits);
    *scales++ = scale;
    q.resize(values.size());
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = to_integer(values[i] / scale, range.low, range.high);
    if (format.bits == 4) balance(values.data(), scale, range, q, carried);
    for (std::size_t i = 0; i < q.size(); ++i)
      format.set(row, begin + static_cast<std::int64_t>(i), static_cast<int>(q[i]));
  }
}

StoredWeights room_for(const WeightFormat& format, std::int64_t outputs, std::int64_t depth) {
  return {
      Tensor(TensorDesc{Shape{outputs, format.row_bytes(depth)}, format.bits == 8 ? DType::i8 : DType::u8}),
      Tensor(TensorDesc{Shape{outputs, format.groups(depth)}})};
}

// A layer as `rounded` has it, or with the nearest integers.
StoredLayer stored_layer(const Node& node, const RealWeights& real, const WeightFormat& format,
                         std::map<std::string, StoredLayer>& rounded, ThreadPool& pool) {
  const auto given = rounded.find(node.name);
  if (given != rounded.end()) return std::move(given->second);
  return {store_weights(format, real.shape[0], real.values(), pool), real.bias};
}

}  // namespace

StoredWeights store_weights(const WeightFormat& format, std::int64_t outputs, std::span<const float> weights,
                            ThreadPool& pool) {
  const auto depth = static_cast<std::int64_t>(weights.size()) / outputs;
  const std::int64_t row_bytes = format.row_bytes(depth);
  StoredWeights stored = room_for(format, outputs, depth);
  std::byte* integers = stored.integers.view().data;
  float* scales = stored.scales.values<float>().data();
  pool.parallel_for(outputs, [&](std::int64_t o, int /*worker*/) {
    store_row(format, weights.subspan(static_cast<std::size_t>(o * depth), static_cast<std::size_t>(depth)),
              integers + o * row_bytes, scales + o * format.groups(depth));
  });
  return stored;
}

StoredWeights pack_weights(const WeightFormat& format, std::int64_t outputs,
                           std::span<const std::int8_t> integers, std::span<const float> scales) {
  const auto depth = static_cast<std::int64_t>(integers.size()) / outputs;
  if (std::ssize(scales) != outputs * format.groups(depth))
    fail("{} scales for {} rows of {} groups", scales.size(), outputs, format.groups(depth));
  StoredWeights stored = room_for(format, outputs, depth);
  std::byte* row = stored.integers.view().data;
  std::fill_n(row, outputs * format.row_bytes(depth), std::byte{0});
  const std::int8_t* from = integers.data();
  for (std::int64_t o = 0; o < outputs; ++o, row += format.row_bytes(depth)) {
    for (std::int64_t k = 0; k < depth; ++k) format.set(row, k, *from++);
  }
  std::copy(scales.begin(), scales.end(), stored.scales.values<float>().begin());
  return stored;
}

std::vector<std::int8_t> stored_integers(const WeightFormat& format, const StoredWeights& stored,
                                         std::int64_t depth) {
  std::vector<std::int8_t> integers;
  const std::byte* row = stored.integers.view().data;
  for (std::int64_t o = 0; o < stored.integers.shape()[0]; ++o, row += format.row_bytes(depth)) {
    for (std::int64_t k = 0; k < depth; ++k) integers.push_back(static_cast<std::int8_t>(format.at(row, k)));
  }
  return integers;
}

WeightFormat weight_format(const WeightOnlyOptions& options, bool convolution, std::int64_t inputs) {
  // Up to this many inputs weights stay in 8 bits: 4 save little memory there.
  constexpr std::int64_t kMaxByteInputs = 64;
  if (options.bits == 8 || inputs <= kMaxByteInputs) return {8, 0};
  if (options.group_size != 0) return {options.bits, options.group_size};
  return {options.bits, convolution ? 32 : 128};
}

std::optional<WeightFormat> stored_format(const Graph& graph, const Node& node,
                                          const WeightOnlyOptions& options) {
  const auto* conv = layer_if<Conv>(node);
  const bool one_tap =
      conv == nullptr || (conv->attributes().window.taps() == 1 && conv->attributes().groups == 1);
  if (!one_tap || !has_constant_weights(graph, node)) return std::nullopt;
  if (options.device == DeviceKind::cuda && adds_constant(graph, node)) return std::nullopt;
  const Shape& shape = graph.value(node.inputs[1]).desc.shape;
  const auto* gemm = layer_if<Gemm>(node);
  const bool outputs_first = conv != nullptr || (gemm != nullptr && gemm->attributes().transpose_b);
  return weight_format(options, conv != nullptr, shape[outputs_first ? 1 : 0]);
}

Rewritten store_weights_only(Graph graph, const WeightOnlyOptions& options, ThreadPool& pool,
                             std::map<std::string, StoredLayer> rounded) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const std::optional<WeightFormat> format = stored_format(graph, node, options);
    if (!format) {
      rewriter.copy(node);
      continue;
    }
    const auto* conv = layer_if<Conv>(node);
    const ValueId old_weights = node.inputs[1];
    const std::string name = graph.value(old_weights).name;
    const RealWeights real = real_weights(graph, node);
    if (rewriter.uses(old_weights) == 1) graph.release_constant(old_weights);
    StoredLayer stored;
    try {
      stored = stored_layer(node, real, *format, rounded, pool);
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
    std::vector<ValueId> inputs{
        rewriter.map(node.inputs[0]), rewriter.constant(name, std::move(stored.weights.integers)),
        rewriter.constant(name + ".scales", std::move(stored.weights.scales)), kNoValue};
    if (!stored.bias.empty()) {
      inputs[3] =
          rewriter.constant(node.name + ".bias",
                            Tensor::from<float>(Shape{real.shape[0]}, std::span<const float>(stored.bias)));
    }
    LayerPtr layer;
    if (conv != nullptr) {
      if (node.inputs.size() > 3) inputs.push_back(rewriter.map(node.inputs[3]));
      layer = std::make_shared<WConv>(WConvAttributes{*format, conv->attributes()});
    } else {
      const auto* gemm = layer_if<Gemm>(node);
      layer = std::make_shared<WLinear>(
          WLinearAttributes{*format, gemm != nullptr ? gemm->attributes().activation : Clamp{}});
    }
    rewriter.emit(node.name, layer, std::move(inputs), node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
