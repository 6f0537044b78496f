// Layer, root mean square and instance normalization written out as means, differences, squares and roots.
#include <algorithm>
#include <cmath>

#include "layers/ops/normalization.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit::internal {

namespace {

using Dims = std::array<bool, kMaxRank>;

struct Mean {
  ValueId of = kNoValue;
  Dims dims{};
};

// (x - mean(x)) / sqrt(var(x) + epsilon), over these dimensions; with rms x / sqrt(mean(x^2) + epsilon).
struct Normalized {
  ValueId x = kNoValue;
  Dims dims{};
  float epsilon = 0;
  bool rms = false;
};

class Matcher {
 public:
  explicit Matcher(const Rewriter& rewriter) : patterns_(rewriter) {}

  // What the node computes: difference / deviation, or difference * (1 / deviation).
  std::optional<Normalized> normalized(const Node& node) const {
    if (Patterns::is_binary(node, BinaryKind::div)) {
      return normalized(node.inputs[0], patterns_.base(node.inputs[1], 0.5));
    }
    if (!Patterns::is_binary(node, BinaryKind::mul)) return std::nullopt;
    for (const auto& [difference, factor] : Patterns::orders(node)) {
      if (auto found = normalized(difference, inverse_square(factor))) return found;
    }
    return std::nullopt;
  }

  // The form of TensorFlow's batch_normalization on moments: x * k + (bias - mean * k), k = scale / deviation.
  struct Moments {
    Normalized norm;
    ValueId scale = kNoValue;
    ValueId bias = kNoValue;
  };
  std::optional<Moments> moments(const Node& node) const {
    if (!Patterns::is_binary(node, BinaryKind::add)) return std::nullopt;
    for (const auto& [product, shift] : Patterns::orders(node)) {
      const Node* by_k = patterns_.binary(product, BinaryKind::mul);
      const Node* rest = patterns_.binary(shift, BinaryKind::sub);
      const Node* mean_by_k = rest == nullptr ? nullptr : patterns_.binary(rest->inputs[1], BinaryKind::mul);
      if (by_k == nullptr || mean_by_k == nullptr) continue;
      for (const auto& [x, k] : Patterns::orders(*by_k)) {
        for (const auto& [mean, same_k] : Patterns::orders(*mean_by_k)) {
          const std::optional<Mean> m = k == same_k ? mean_of(mean) : std::nullopt;
          if (!m || m->of != x) continue;
          if (auto found = with_scale(x, m->dims, k)) {
            found->bias = rest->inputs[0];
            return found;
          }
        }
      }
    }
    return std::nullopt;
  }

  const Patterns& patterns() const { return patterns_; }

 private:
  // v where the value is 1 / sqrt(v).
  ValueId inverse_square(ValueId id) const {
    const ValueId direct = patterns_.base(id, -0.5);
    if (direct != kNoValue) return direct;
    const ValueId root = patterns_.base(id, -1);
    return root == kNoValue ? kNoValue : patterns_.base(root, 0.5);
  }

  // k = 1 / deviation, or scale / deviation.
  std::optional<Moments> with_scale(ValueId x, const Dims& dims, ValueId k) const {
    const auto by = [&](ValueId variance, ValueId scale) -> std::optional<Moments> {
      const auto norm = variance == kNoValue ? std::nullopt : of_variance(variance, x, dims);
      return norm ? std::optional(Moments{*norm, scale, kNoValue}) : std::nullopt;
    };
    if (auto found = by(inverse_square(k), kNoValue)) return found;
    const Node* product = patterns_.binary(k, BinaryKind::mul);
    if (product == nullptr) return std::nullopt;
    for (const auto& [factor, scale] : Patterns::orders(*product)) {
      if (auto found = by(inverse_square(factor), scale)) return found;
    }
    return std::nullopt;
  }

  std::optional<Normalized> normalized(ValueId difference, ValueId variance) const {
    const std::optional<Normalized> squares = variance == kNoValue ? std::nullopt : mean_square(variance);
    if (!squares) return std::nullopt;
    const std::optional<Mean> centre = centred(difference);
    auto found = centre ? of_variance(variance, centre->of, centre->dims) : std::nullopt;
    if (!found && squares->x == difference) found = squares;
    return found;
  }

  // variance = mean((x - mean(x))^2) + epsilon.
  std::optional<Normalized> of_variance(ValueId variance, ValueId x, const Dims& dims) const {
    const std::optional<Normalized> squares = mean_square(variance);
    const std::optional<Mean> centre = squares ? centred(squares->x) : std::nullopt;
    if (!centre || centre->of != x || centre->dims != dims || squares->dims != dims) return std::nullopt;
    return Normalized{x, dims, squares->epsilon};
  }

  // The value = mean(x^2) + epsilon.
  std::optional<Normalized> mean_square(ValueId id) const {
    const Node* sum = patterns_.binary(id, BinaryKind::add);
    if (sum == nullptr) return std::nullopt;
    for (const auto& [mean, epsilon] : Patterns::orders(*sum)) {
      const std::optional<double> number = patterns_.number(epsilon);
      const std::optional<Mean> of_squares = number && *number >= 0 ? mean_of(mean) : std::nullopt;
      const ValueId x = of_squares ? patterns_.base(of_squares->of, 2) : kNoValue;
      if (x != kNoValue) return Normalized{x, of_squares->dims, static_cast<float>(*number), true};
    }
    return std::nullopt;
  }

  // x - mean(x).
  std::optional<Mean> centred(ValueId id) const {
    const Node* node = id == kNoValue ? nullptr : patterns_.binary(id, BinaryKind::sub);
    const std::optional<Mean> mean = node == nullptr ? std::nullopt : mean_of(node->inputs[1]);
    return mean && mean->of == node->inputs[0] ? mean : std::nullopt;
  }

  // A mean, or a sum over the number of its terms, that keeps its dimensions.
  std::optional<Mean> mean_of(ValueId id) const {
    const Node* node = id == kNoValue ? nullptr : patterns_.producer(id);
    if (node == nullptr) return std::nullopt;
    if (auto mean = reduced(*node, ReduceKind::mean)) return mean;
    if (layer_if<Binary>(*node) == nullptr) return std::nullopt;
    for (const ValueId operand : node->inputs) {
      const Node* sum = patterns_.producer(operand);
      const std::optional<Mean> terms = sum == nullptr ? std::nullopt : reduced(*sum, ReduceKind::sum);
      if (!terms) continue;
      const double count =
          static_cast<double>(graph().value(terms->of).desc.shape.elements()) /
          static_cast<double>(std::max<std::int64_t>(graph().value(operand).desc.elements(), 1));
      if (patterns_.scaled(id, 1 / count) == operand) return terms;
    }
    return std::nullopt;
  }

  std::optional<Mean> reduced(const Node& node, ReduceKind kind) const {
    const auto* reduce = layer_if<Reduce>(node);
    if (reduce == nullptr || reduce->attributes().kind != kind || !reduce->attributes().keep_dims) {
      return std::nullopt;
    }
    return Mean{node.inputs[0], reduced_dims(reduce->attributes(), graph().value(node.inputs[0]).desc.shape)};
  }

  const Graph& graph() const { return patterns_.graph(); }

  Patterns patterns_;
};

// A constant that differs along `dims` of x only, with all elements along these; null for other values.
std::optional<Tensor> parameter(const Graph& graph, ValueId id, const Shape& x, const Dims& dims) {
  const Tensor* tensor = id == kNoValue ? nullptr : graph.value(id).constant.get();
  if (tensor == nullptr || tensor->desc().dtype != DType::f32) return std::nullopt;
  const Shape& shape = tensor->shape();
  const int offset = x.rank() - shape.rank();
  if (offset < 0) return std::nullopt;
  const Strides strides = tensor->desc().strides();
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> steps;
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t extent = d < offset ? 1 : shape[d - offset];
    const bool varies = dims[static_cast<std::size_t>(d)];
    if (extent != 1 && (!varies || extent != x[d])) return std::nullopt;
    if (!varies) continue;
    extents.push_back(x[d]);
    steps.push_back(extent == 1 ? 0 : strides[static_cast<std::size_t>(d - offset)]);
  }
  Tensor result{TensorDesc{Shape(extents)}};
  const std::span<float> to = result.values<float>();
  const float* from = tensor->values<float>().data();
  for (std::size_t i = 0; i < to.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t at = 0;
    for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) at += rest % extents[d] * steps[d];
    to[i] = from[at];
  }
  return result;
}

// What follows as y * scale + bias, each along `dims`; the value that it ends in.
struct Affine {
  std::optional<Tensor> scale;
  std::optional<Tensor> bias;
  std::vector<const Node*> nodes;
};

Affine affine_after(const Patterns& patterns, ValueId y, const Dims& dims) {
  Affine result;
  const Graph& graph = patterns.graph();
  const TensorDesc& desc = graph.value(y).desc;
  const auto follow = [&](BinaryKind kind) -> std::optional<Tensor> {
    const ValueId last = result.nodes.empty() ? y : result.nodes.back()->outputs[0];
    const Node* next = patterns.only_consumer(last);
    if (next == nullptr || !Patterns::is_binary(*next, kind) ||
        !(graph.value(next->outputs[0]).desc == desc)) {
      return std::nullopt;
    }
    auto found = parameter(graph, next->inputs[next->inputs[0] == last ? 1 : 0], desc.shape, dims);
    if (found) result.nodes.push_back(next);
    return found;
  };
  result.scale = follow(BinaryKind::mul);
  result.bias = follow(BinaryKind::add);
  return result;
}

Tensor filled(const Shape& shape, float value) {
  Tensor tensor{TensorDesc{shape}};
  std::ranges::fill(tensor.values<float>(), value);
  return tensor;
}

class LayerNormPass {
 public:
  explicit LayerNormPass(const Graph& graph)
      : rewriter_(graph), matcher_(rewriter_), absorbed_(graph.nodes().size(), false) {}

  Rewritten run() {
    const Graph& graph = rewriter_.source();
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      if (absorbed_[n]) continue;
      const Node& node = graph.nodes()[n];
      if (!replace(node)) rewriter_.copy(node);
    }
    return {rewriter_.finish(), changes_};
  }

 private:
  bool replace(const Node& node) {
    const Graph& graph = rewriter_.source();
    if (const auto norm = matcher_.normalized(node)) {
      if (!fits(*norm, node)) return false;
      const Dims per_channel{false, true};
      Affine affine = affine_after(matcher_.patterns(), node.outputs[0], norm->dims);
      if (affine.nodes.empty() && !norm->rms && is_spatial(*norm)) {
        affine = affine_after(matcher_.patterns(), node.outputs[0], per_channel);
      }
      for (const Node* next : affine.nodes)
        absorbed_[static_cast<std::size_t>(next - graph.nodes().data())] = true;
      emit(node, *norm, affine, affine.nodes.empty() ? node : *affine.nodes.back());
      return true;
    }
    const auto found = matcher_.moments(node);
    if (!found || !fits(found->norm, node)) return false;
    const Shape& shape = graph.value(found->norm.x).desc.shape;
    Dims dims = found->norm.dims;
    for (const bool channels : {false, true}) {
      if (channels && !is_spatial(found->norm)) break;
      if (channels) dims = {false, true};
      Affine affine{
          parameter(graph, found->scale, shape, dims), parameter(graph, found->bias, shape, dims), {}};
      if (!affine.bias || (found->scale != kNoValue && !affine.scale)) continue;
      emit(node, found->norm, affine, node);
      return true;
    }
    return false;
  }

  // Samples must stay apart, and the result is shaped like x.
  bool fits(const Normalized& norm, const Node& node) const {
    const TensorDesc& x = rewriter_.source().value(norm.x).desc;
    return x.dtype == DType::f32 && x.shape.rank() >= 2 && !norm.dims[0] &&
           rewriter_.source().value(node.outputs[0]).desc == x;
  }

  // Over all of several spatial dimensions, as an instance normalization is.
  bool is_spatial(const Normalized& norm) const {
    const int rank = rewriter_.source().value(norm.x).desc.shape.rank();
    for (int d = 0; d < rank; ++d) {
      if (norm.dims[static_cast<std::size_t>(d)] != (d >= 2)) return false;
    }
    return rank >= 4;
  }

  void emit(const Node& node, const Normalized& norm, Affine& affine, const Node& last) {
    ++changes_;
    const Shape shape = rewriter_.source().value(norm.x).desc.shape;
    const ValueId x = rewriter_.map(norm.x);
    const auto constant = [&](std::optional<Tensor>& tensor, const char* part, const Shape& like,
                              float value) {
      return rewriter_.constant(node.name + part, tensor ? std::move(*tensor) : filled(like, value));
    };
    const Shape channels{shape[1]};
    const bool spatial = !norm.rms && is_spatial(norm);
    if (spatial && (!affine.scale || affine.scale->shape() == channels) &&
        (!affine.bias || affine.bias->shape() == channels)) {
      rewriter_.emit(
          node.name, std::make_shared<InstanceNorm>(InstanceNormAttributes{norm.epsilon}),
          {x, constant(affine.scale, ".scale", channels, 1), constant(affine.bias, ".bias", channels, 0)},
          last.outputs);
      return;
    }
    std::vector<std::int64_t> order;    // the dimensions that are normalized at the end
    std::vector<std::int64_t> extents;  // of these
    for (const bool normalized : {false, true}) {
      for (int d = 0; d < shape.rank(); ++d) {
        if (norm.dims[static_cast<std::size_t>(d)] != normalized) continue;
        order.push_back(d);
        if (normalized) extents.push_back(shape[d]);
      }
    }
    const Shape inner(extents);
    std::vector<ValueId> inputs{x, constant(affine.scale, ".scale", inner, 1)};
    if (affine.bias) inputs.push_back(constant(affine.bias, ".bias", inner, 0));
    LayerNormAttributes attributes;
    attributes.axis = -static_cast<std::int64_t>(extents.size());
    attributes.epsilon = norm.epsilon;
    attributes.rms = norm.rms;
    const auto layer = std::make_shared<LayerNorm>(attributes);
    if (std::ranges::is_sorted(order)) {
      rewriter_.emit(node.name, layer, std::move(inputs), last.outputs);
      return;
    }
    std::vector<std::int64_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    inputs[0] = transposed(node.name + ".in", x, order);
    const ValueId y =
        rewriter_.builder().add1(node.name, layer, std::move(inputs), node.name + ".normalized");
    rewriter_.emit(node.name + ".out", std::make_shared<Transpose>(TransposeAttributes{back}), {y},
                   last.outputs);
  }

  ValueId transposed(const std::string& name, ValueId x, const std::vector<std::int64_t>& permutation) {
    return rewriter_.builder().add1(name, std::make_shared<Transpose>(TransposeAttributes{permutation}), {x},
                                    name);
  }

  Rewriter rewriter_;
  Matcher matcher_;
  std::vector<bool> absorbed_;
  int changes_ = 0;
};

}  // namespace

Rewritten fuse_layer_norm(const Graph& graph) {
  return LayerNormPass(graph).run();
}

}  // namespace pipit::internal
