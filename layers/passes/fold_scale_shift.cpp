#include <algorithm>
#include <cmath>
#include <optional>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/gemm.h"
#include "layers/ops/normalization.h"
#include "layers/ops/quantize.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// y = x * scale[c] + shift[c] along dimension 1.
struct ScaleShift {
  std::vector<double> scale;
  std::vector<double> shift;
};

const Tensor* constant_f32(const Graph& graph, ValueId id) {
  if (id == kNoValue) return nullptr;
  const Tensor* tensor = graph.value(id).constant.get();
  return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
}

std::optional<ScaleShift> from_batch_norm(const Graph& graph, const Node& node, const BatchNorm& layer) {
  std::array<std::span<const float>, 4> p;  // scale, bias, mean, variance
  for (std::size_t i = 0; i < 4; ++i) {
    const Tensor* tensor = constant_f32(graph, node.inputs[i + 1]);
    if (tensor == nullptr) return std::nullopt;
    p[i] = tensor->values<float>();
  }
  ScaleShift result;
  for (std::size_t c = 0; c < p[0].size(); ++c) {
    const double scale = p[0][c] / std::sqrt(static_cast<double>(p[3][c]) + layer.attributes().epsilon);
    result.scale.push_back(scale);
    result.shift.push_back(p[1][c] - p[2][c] * scale);
  }
  return result;
}

// A constant that broadcasts to `shape` along dimension 1 only: one value per channel.
std::optional<std::vector<double>> per_channel(const Tensor& tensor, const Shape& shape) {
  const auto channels = static_cast<std::size_t>(shape[1]);
  const std::span<const float> values = tensor.values<float>();
  if (values.size() == 1 && tensor.shape().rank() <= shape.rank()) {
    return std::vector<double>(channels, values[0]);
  }
  const int offset = shape.rank() - tensor.shape().rank();
  if (offset < 0 || offset > 1 || values.size() != channels || tensor.shape()[1 - offset] != shape[1]) {
    return std::nullopt;
  }
  return std::vector<double>(values.begin(), values.end());
}

std::optional<ScaleShift> from_binary(const Graph& graph, const Node& node, const Binary& layer,
                                      ValueId data) {
  const bool data_first = node.inputs[0] == data;
  const ValueId other = node.inputs[data_first ? 1 : 0];
  const Tensor* tensor = constant_f32(graph, other);
  const Shape& shape = graph.value(data).desc.shape;
  if (tensor == nullptr || !layer.attributes().activation.is_identity() || shape.rank() < 2 ||
      !(graph.value(node.outputs[0]).desc.shape == shape)) {
    return std::nullopt;
  }
  const std::optional<std::vector<double>> values = per_channel(*tensor, shape);
  if (!values) return std::nullopt;
  ScaleShift result{std::vector<double>(values->size(), 1.0), std::vector<double>(values->size(), 0.0)};
  for (std::size_t c = 0; c < values->size(); ++c) {
    const double v = (*values)[c];
    switch (layer.attributes().kind) {
      case BinaryKind::add:
        result.shift[c] = v;
        break;
      case BinaryKind::sub:
        result.scale[c] = data_first ? 1 : -1;
        result.shift[c] = data_first ? -v : v;
        break;
      case BinaryKind::mul:
        result.scale[c] = v;
        break;
      case BinaryKind::div:
        if (!data_first || v == 0) return std::nullopt;
        result.scale[c] = 1 / v;
        break;
      default:
        return std::nullopt;
    }
  }
  return result;
}

std::optional<ScaleShift> scale_shift_of(const Graph& graph, const Node& node, ValueId data) {
  if (const auto* bn = layer_if<BatchNorm>(node)) {
    return node.inputs[0] == data ? from_batch_norm(graph, node, *bn) : std::nullopt;
  }
  if (const auto* binary = layer_if<Binary>(node)) return from_binary(graph, node, *binary, data);
  return std::nullopt;
}

// A constant bias of `channels` values, zero where the node has none; null when it cannot be folded.
std::optional<std::vector<double>> bias_of(const Graph& graph, const Node& node, std::size_t input,
                                           std::size_t channels) {
  if (input >= node.inputs.size() || node.inputs[input] == kNoValue)
    return std::vector<double>(channels, 0.0);
  const Tensor* tensor = constant_f32(graph, node.inputs[input]);
  if (tensor == nullptr) return std::nullopt;
  const std::span<const float> values = tensor->values<float>();
  const Shape& shape = tensor->shape();
  if (values.size() == 1) return std::vector<double>(channels, values[0]);
  if (values.size() != channels || shape[shape.rank() - 1] != static_cast<std::int64_t>(channels))
    return std::nullopt;
  return std::vector<double>(values.begin(), values.end());
}

Tensor vector_f32(const std::vector<double>& values) {
  std::vector<float> narrow(values.begin(), values.end());
  return Tensor::from<float>(Shape{static_cast<std::int64_t>(narrow.size())}, std::span<const float>(narrow));
}

// Convolutions and Gemms that may take a scale and shift: one weight tensor with the output channel along a
// known axis, nothing after the bias yet.
struct Target {
  int channel_axis = 0;  // of the weights
  std::int64_t groups =
      1;  // into which the weights' dimension 0 is split; the channel axis counts those of one
  double bias_factor = 1;  // Gemm's beta
};

std::optional<Target> target_of(const Graph& graph, const Node& node) {
  if (node.inputs.size() < 2 || constant_f32(graph, node.inputs[1]) == nullptr) return std::nullopt;
  if (const auto* conv = layer_if<Conv>(node)) {
    if (!conv->attributes().activation.is_identity() || node.inputs.size() > 3) return std::nullopt;
    return Target{};
  }
  if (const auto* conv = layer_if<ConvTranspose>(node)) {
    if (!conv->attributes().activation.is_identity()) return std::nullopt;
    return Target{.channel_axis = 1, .groups = conv->attributes().groups};
  }
  if (const auto* gemm = layer_if<Gemm>(node)) {
    if (!gemm->attributes().activation.is_identity()) return std::nullopt;
    return Target{.channel_axis = gemm->attributes().transpose_b ? 0 : 1,
                  .bias_factor = gemm->attributes().beta};
  }
  return std::nullopt;
}

LayerPtr with_unit_beta(const Node& node) {
  if (const auto* gemm = layer_if<Gemm>(node)) {
    GemmAttributes attributes = gemm->attributes();
    attributes.beta = 1;
    return std::make_shared<Gemm>(attributes);
  }
  return node.layer;
}

Tensor scaled_weights(const Tensor& weights, const Target& target, const std::vector<double>& scale) {
  Tensor result = to_layout(weights.view(), Layout::row_major);
  const std::span<float> values = result.values<float>();
  const std::int64_t channels = weights.shape()[target.channel_axis];
  std::int64_t inner = 1;
  for (int d = target.channel_axis + 1; d < weights.shape().rank(); ++d) inner *= weights.shape()[d];
  float* at = values.data();
  const std::int64_t outer = values.empty() ? 0 : std::ssize(values) / (channels * inner);
  for (std::int64_t o = 0; o < outer; ++o) {
    // `scale` has the channels of all groups.
    const double* factors = scale.data() + o * target.groups / outer * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < inner; ++i, ++at) *at = static_cast<float>(*at * factors[c]);
    }
  }
  return result;
}

// What a target and all the arithmetic after it amount to: (A x) * scale + bias.
struct Folded {
  std::vector<double> scale;
  std::vector<double> bias;
  int last = -1;  // the node whose output stands for the result
};

// Walks along the followers that can be folded; `last` stays -1 where there is none.
Folded fold_followers(const Rewriter& rewriter, const Node& node, const Target& target,
                      std::vector<bool>& absorbed) {
  const Graph& graph = rewriter.source();
  Folded folded;
  ValueId data = node.outputs[0];
  for (int next = rewriter.only_consumer(data); next >= 0; next = rewriter.only_consumer(data)) {
    const Node& follower = graph.nodes()[static_cast<std::size_t>(next)];
    const std::optional<ScaleShift> affine = scale_shift_of(graph, follower, data);
    if (!affine) break;
    if (folded.last < 0) {
      const std::optional<std::vector<double>> bias = bias_of(graph, node, 2, affine->scale.size());
      if (!bias) break;
      folded.scale.assign(bias->size(), 1.0);
      folded.bias = *bias;
      for (double& b : folded.bias) b *= target.bias_factor;
    }
    for (std::size_t c = 0; c < folded.scale.size(); ++c) {
      folded.scale[c] *= affine->scale[c];
      folded.bias[c] = folded.bias[c] * affine->scale[c] + affine->shift[c];
    }
    absorbed[static_cast<std::size_t>(next)] = true;
    folded.last = next;
    data = follower.outputs[0];
  }
  return folded;
}

// The operand of an element-wise node that is no constant; kNoValue where there is not one of them.
ValueId data_operand(const Graph& graph, const Node& node) {
  if (layer_if<BatchNorm>(node)) return node.inputs[0];
  if (!layer_if<Binary>(node)) return kNoValue;
  const bool first = graph.value(node.inputs[0]).is_constant();
  const bool second = graph.value(node.inputs[1]).is_constant();
  return first == second ? kNoValue : node.inputs[first ? 1 : 0];
}

bool has_vector(const Graph& graph, const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return graph.value(id).is_constant() && graph.value(id).desc.elements() > 1;
  });
}

// Values that a convolution may read: no images of few channels, which first layers read as they lie, and nothing that
// a quantized model keeps in floating point, which would be counted as a convolution that is not quantized.
bool suits_convolution(const Rewriter& rewriter, ValueId data) {
  constexpr int kMaxImageChannels = 4;
  const Graph& graph = rewriter.source();
  const Shape& shape = graph.value(data).desc.shape;
  const int producer = rewriter.producer(data);
  // An input of the graph lies by rows, which convolutions of one channel a group would have to turn.
  const bool computed =
      producer >= 0 && layer_if<Dequantize>(graph.nodes()[static_cast<std::size_t>(producer)]) == nullptr;
  return shape.rank() == 4 && shape[1] > kMaxImageChannels && computed;
}

// A node and the arithmetic after it as one scale and shift; none where it is one node that may stay as it is, or
// where no constant has a value per channel: scalars suit any layout and rank as they are.
Folded join_followers(const Rewriter& rewriter, const Node& first, std::vector<bool>& absorbed) {
  const Graph& graph = rewriter.source();
  Folded folded;
  std::vector<int> nodes;
  bool vectors = false;
  const Node* node = &first;
  for (ValueId data = data_operand(graph, first); data != kNoValue;) {
    const std::optional<ScaleShift> affine = scale_shift_of(graph, *node, data);
    if (!affine) break;
    if (folded.scale.empty()) {
      folded.scale.assign(affine->scale.size(), 1.0);
      folded.bias.assign(affine->scale.size(), 0.0);
    }
    for (std::size_t c = 0; c < folded.scale.size(); ++c) {
      folded.scale[c] *= affine->scale[c];
      folded.bias[c] = folded.bias[c] * affine->scale[c] + affine->shift[c];
    }
    nodes.push_back(static_cast<int>(node - graph.nodes().data()));
    vectors = vectors || has_vector(graph, *node);
    data = node->outputs[0];
    const int next = rewriter.only_consumer(data);
    if (next < 0) break;
    node = &graph.nodes()[static_cast<std::size_t>(next)];
  }
  const bool lowers = layer_if<BatchNorm>(first) && suits_convolution(rewriter, first.inputs[0]);
  if ((nodes.size() < 2 && !lowers) || !vectors) return {};
  folded.last = nodes.back();
  for (const int n : nodes) absorbed[static_cast<std::size_t>(n)] = true;
  return folded;
}

// Instead of `first` and what follows it up to folded.last.
void emit_scale_shift(Rewriter& rewriter, const Node& first, const Folded& folded) {
  const Graph& graph = rewriter.source();
  const ValueId data = data_operand(graph, first);
  const auto constant = [&](const char* what, Tensor values) {
    return rewriter.constant(first.name + what, std::move(values));
  };
  std::vector<ValueId> inputs{rewriter.map(data), kNoValue, constant(".shift", vector_f32(folded.bias))};
  LayerPtr layer;
  if (suits_convolution(rewriter, data)) {
    ConvAttributes attributes;
    attributes.groups = std::ssize(folded.scale);
    layer = std::make_shared<Conv>(attributes);
    const std::vector<float> scale(folded.scale.begin(), folded.scale.end());
    inputs[1] = constant(
        ".scale", Tensor::from<float>(Shape{attributes.groups, 1, 1, 1}, std::span<const float>(scale)));
  } else {
    layer = std::make_shared<BatchNorm>(BatchNormAttributes{.epsilon = 0});
    inputs[1] = constant(".scale", vector_f32(folded.scale));
    inputs.push_back(constant(".mean", vector_f32(std::vector<double>(folded.scale.size(), 0.0))));
    inputs.push_back(constant(".variance", vector_f32(std::vector<double>(folded.scale.size(), 1.0))));
  }
  rewriter.emit(first.name, layer, inputs, graph.nodes()[static_cast<std::size_t>(folded.last)].outputs);
}

// What no weights took, into one layer.
Rewritten join_chains(const Graph& graph) {
  Rewriter rewriter(graph);
  std::vector<bool> absorbed(graph.nodes().size(), false);
  int changes = 0;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (absorbed[n]) continue;
    const Folded folded = join_followers(rewriter, node, absorbed);
    if (folded.last < 0) {
      rewriter.copy(node);
      continue;
    }
    emit_scale_shift(rewriter, node, folded);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

// Into the weights and biases of convolutions and matrix products.
Rewritten fold_into_weights(Graph graph) {
  Rewriter rewriter(graph);
  std::vector<bool> absorbed(graph.nodes().size(), false);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (absorbed[n]) continue;
    const std::optional<Target> target = target_of(graph, node);
    const Folded folded = target ? fold_followers(rewriter, node, *target, absorbed) : Folded{};
    if (folded.last < 0) {
      rewriter.copy(node);
      continue;
    }
    const Value& weights = graph.value(node.inputs[1]);
    ValueId w = kNoValue;
    if (std::ranges::all_of(folded.scale, [](double factor) { return factor == 1; })) {
      w = rewriter.map(node.inputs[1]);
    } else {
      w = rewriter.constant(weights.name, scaled_weights(*weights.constant, *target, folded.scale));
      if (rewriter.uses(node.inputs[1]) == 1) graph.release_constant(node.inputs[1]);
    }
    const ValueId b = rewriter.constant(node.name + ".bias", vector_f32(folded.bias));
    rewriter.emit(node.name, with_unit_beta(node), {rewriter.map(node.inputs[0]), w, b},
                  graph.nodes()[static_cast<std::size_t>(folded.last)].outputs);
  }
  return {rewriter.finish(), static_cast<int>(std::count(absorbed.begin(), absorbed.end(), true))};
}

}  // namespace

Rewritten fold_scale_shift(Graph graph) {
  const Rewritten folded = fold_into_weights(std::move(graph));
  Rewritten joined = join_chains(folded.graph);
  joined.changes += folded.changes;
  return joined;
}

}  // namespace pipit::internal
