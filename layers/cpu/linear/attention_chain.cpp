#include "layers/cpu/linear/attention_chain.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/ops/binary.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/softmax.h"

namespace pipit::internal {

namespace {

// The value of a constant with one f32 element.
std::optional<float> number_of(const NodeSpec& node, std::size_t input) {
  const Tensor* constant = node.constant(input);
  if (constant == nullptr || constant->desc().dtype != DType::f32 || constant->desc().elements() != 1)
    return std::nullopt;
  return constant->values<float>()[0];
}

bool is_plain(const NodeSpec& node) {
  if (node.precision != Precision::fp32) return false;
  const auto fits = [](const TensorDesc& desc) { return is_row_major(desc) && desc.shape.rank() >= 2; };
  if (!fits(node.outputs[0])) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const TensorDesc* input = node.inputs[i];
    if (input == nullptr) return false;
    if (node.constant(i) == nullptr && (!fits(*input) || is_stored_float(input->dtype))) return false;
  }
  return true;
}

template <typename L>
const L* layer_if(const NodeSpec& node) {
  return node.layer.type() == L::kType ? &layer_as<L>(node.layer) : nullptr;
}

// A scale of one operand, and the input that holds it.
std::optional<std::size_t> scale_of(const NodeSpec& node) {
  const auto* binary = layer_if<Binary>(node);
  if (binary == nullptr || binary->attributes().kind != BinaryKind::mul) return std::nullopt;
  if (!binary->attributes().activation.is_identity()) return std::nullopt;
  for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
    if (number_of(node, i) && node.constant(1 - i) == nullptr &&
        node.inputs[1 - i]->shape == node.outputs[0].shape)
      return i;
  }
  return std::nullopt;
}

// The role of a value in the chain.
struct Traced {
  enum class Kind : std::uint8_t { operand, scores, probabilities, highest_bias, no_keys, result };
  Kind kind = Kind::operand;
  AttentionOperand operand;  // for highest_bias and no_keys the bias
};

class Tracer {
 public:
  explicit Tracer(std::size_t inputs) : inputs_(inputs) {}

  bool add(const NodeSpec& node, std::span<const LinkSource> sources) {
    if (!is_plain(node)) return false;
    std::optional<Traced> traced = follow(node, sources);
    if (!traced) return false;
    values_.push_back(*traced);
    return true;
  }
  std::optional<AttentionChain> finish() {
    if (values_.empty() || values_.back().kind != Traced::Kind::result) return std::nullopt;
    chain_.result = values_.back().operand.shape;
    chain_.result_strides = values_.back().operand.strides;
    return chain_;
  }

 private:
  using Kind = Traced::Kind;

  // What an input of a node is: a value of the chain, or memory.
  Traced source(const NodeSpec& node, std::span<const LinkSource> sources, std::size_t i) const {
    const LinkSource from = sources[i];
    if (from.kind == LinkSource::Kind::node) return values_[static_cast<std::size_t>(from.index)];
    Traced traced;
    traced.operand.shape = node.inputs[i]->shape;
    traced.operand.strides = node.inputs[i]->strides();
    traced.operand.constant = from.kind == LinkSource::Kind::none ? node.constant(i) : nullptr;
    if (from.kind == LinkSource::Kind::input) traced.operand.input = from.index;
    if (from.kind == LinkSource::Kind::outside) traced.operand.input = static_cast<int>(inputs_) + from.index;
    return traced;
  }

  std::optional<Traced> follow(const NodeSpec& node, std::span<const LinkSource> sources) {
    const auto in = [&](std::size_t i) { return source(node, sources, i); };
    if (const auto* transpose = layer_if<Transpose>(node)) return transposed(in(0), *transpose);
    if (layer_if<MatMul>(node) != nullptr) return multiplied(in(0), in(1));
    if (const auto* softmax = layer_if<Softmax>(node)) return normalized(in(0), *softmax, node);
    if (const auto scale = scale_of(node)) {
      Traced x = in(1 - *scale);
      if (x.kind != Kind::operand) return std::nullopt;
      x.operand.scale *= *number_of(node, *scale);
      return x;
    }
    if (const auto* reduce = layer_if<Reduce>(node)) return highest(in(0), *reduce, node);
    if (layer_if<Where>(node) != nullptr) return zeroed(in(0), in(2), node);
    if (const auto* binary = layer_if<Binary>(node)) return combined(in(0), in(1), *binary, node);
    return std::nullopt;
  }

  static std::optional<Traced> transposed(Traced x, const Transpose& layer) {
    if (x.kind != Kind::operand && x.kind != Kind::result) return std::nullopt;
    const AttentionOperand from = x.operand;
    const std::vector<std::int64_t>& permutation = layer.attributes().permutation;
    std::vector<std::int64_t> dims;
    for (const std::int64_t d : permutation) dims.push_back(from.shape[static_cast<int>(d)]);
    // Of a result: where its elements go, so that its own dimensions keep their order.
    if (x.kind == Kind::result) {
      const Strides strides = TensorDesc{Shape(dims)}.strides();
      if (!is_row_major_result(from)) return std::nullopt;
      for (std::size_t d = 0; d < permutation.size(); ++d)
        x.operand.strides[static_cast<std::size_t>(permutation[d])] = strides[d];
      return x;
    }
    x.operand.shape = Shape(dims);
    for (std::size_t d = 0; d < permutation.size(); ++d)
      x.operand.strides[d] = from.strides[static_cast<std::size_t>(permutation[d])];
    return x;
  }
  static bool is_row_major_result(const AttentionOperand& x) {
    return x.strides == TensorDesc{x.shape}.strides();
  }

  std::optional<Traced> multiplied(const Traced& a, const Traced& b) {
    const int rank = a.operand.shape.rank();
    const auto is_memory = [](const Traced& x) {
      return x.kind == Kind::operand && x.operand.input >= 0 && x.operand.constant == nullptr;
    };
    if (!is_memory(b) || b.operand.shape.rank() != rank) return std::nullopt;
    for (int d = 0; d + 2 < rank; ++d) {
      if (a.operand.shape[d] != b.operand.shape[d]) return std::nullopt;
    }
    std::vector<std::int64_t> dims;
    for (int d = 0; d + 1 < rank; ++d) dims.push_back(a.operand.shape[d]);
    dims.push_back(b.operand.shape[rank - 1]);
    const Shape shape(dims);
    Traced y{Kind::scores, {}};
    y.operand.shape = shape;
    y.operand.strides = TensorDesc{shape}.strides();
    if (is_memory(a) && !has_scores_) {
      has_scores_ = true;
      chain_.query = a.operand;
      chain_.key = b.operand;
      return y;
    }
    if (a.kind != Kind::probabilities) return std::nullopt;
    chain_.value = b.operand;
    y.kind = Kind::result;
    return y;
  }

  std::optional<Traced> combined(Traced a, Traced b, const Binary& layer, const NodeSpec& node) {
    if (!layer.attributes().activation.is_identity()) return std::nullopt;
    if (layer.attributes().kind == BinaryKind::add) {
      if (a.kind != Kind::scores) std::swap(a, b);
      if (a.kind != Kind::scores || b.kind != Kind::operand || chain_.bias) return std::nullopt;
      if (b.operand.scale != 1 || !(node.outputs[0].shape == a.operand.shape)) return std::nullopt;
      chain_.bias = b.operand;
      return a;
    }
    const bool with_least = number_of(node, 1) == -std::numeric_limits<float>::infinity();
    if (layer.attributes().kind != BinaryKind::equal || a.kind != Kind::highest_bias || !with_least)
      return std::nullopt;
    a.kind = Kind::no_keys;
    return a;
  }

  static std::optional<Traced> normalized(Traced x, const Softmax& layer, const NodeSpec& node) {
    const int rank = node.inputs[0]->shape.rank();
    const SoftmaxGroups groups = softmax_groups(layer.attributes(), node.inputs[0]->shape);
    const bool last = groups.begin == rank - 1 && groups.end == rank && !layer.attributes().log;
    if (x.kind != Kind::scores || !last) return std::nullopt;
    x.kind = Kind::probabilities;
    return x;
  }

  static std::optional<Traced> highest(Traced x, const Reduce& layer, const NodeSpec& node) {
    const Shape& shape = node.inputs[0]->shape;
    if (x.kind != Kind::operand || layer.attributes().kind != ReduceKind::max ||
        !layer.attributes().keep_dims)
      return std::nullopt;
    const auto reduced = reduced_dims(layer.attributes(), shape);
    for (int d = 0; d < shape.rank(); ++d) {
      if (reduced[static_cast<std::size_t>(d)] != (d == shape.rank() - 1)) return std::nullopt;
    }
    x.kind = Kind::highest_bias;
    return x;
  }

  std::optional<Traced> zeroed(const Traced& condition, const Traced& x, const NodeSpec& node) {
    if (condition.kind != Kind::no_keys || x.kind != Kind::probabilities || number_of(node, 1) != 0.0F)
      return std::nullopt;
    const bool own = chain_.bias && chain_.bias->input == condition.operand.input &&
                     condition.operand.input >= 0 && chain_.bias->strides == condition.operand.strides &&
                     chain_.bias->shape == condition.operand.shape;
    if (!own) return std::nullopt;
    chain_.zero_without_keys = true;
    return x;
  }

  std::size_t inputs_;
  std::vector<Traced> values_;
  AttentionChain chain_;
  bool has_scores_ = false;
};

// Rows or columns that follow each other, as packing reads them.
bool is_matrix(const AttentionOperand& x) {
  const auto rank = static_cast<std::size_t>(x.shape.rank());
  return x.strides[rank - 1] == 1 || x.strides[rank - 2] == 1;
}

std::vector<LinkSource> own_inputs(const NodeSpec& first) {
  std::vector<LinkSource> sources;
  for (std::size_t i = 0; i < first.inputs.size(); ++i) {
    const bool constant = first.constant(i) != nullptr;
    sources.push_back({constant ? LinkSource::Kind::none : LinkSource::Kind::input, static_cast<int>(i)});
  }
  return sources;
}

}  // namespace

bool AttentionChain::may_begin(const NodeSpec& first) {
  return is_plain(first) && first.outputs[0].shape.rank() >= 3 &&
         Tracer(first.inputs.size()).add(first, own_inputs(first));
}

std::optional<AttentionChain> AttentionChain::of(const NodeSpec& first, std::span<const ChainLink> links) {
  Tracer tracer(first.inputs.size());
  if (!tracer.add(first, own_inputs(first))) return std::nullopt;
  for (const ChainLink& link : links) {
    if (!tracer.add(*link.node, link.sources)) return std::nullopt;
  }
  std::optional<AttentionChain> chain = tracer.finish();
  if (!chain || chain->query.shape.elements() == 0 || chain->key.shape.elements() == 0 ||
      chain->value.shape.elements() == 0)
    return std::nullopt;
  const auto last = static_cast<std::size_t>(chain->result.rank()) - 1;
  const bool fits = is_matrix(chain->query) && is_matrix(chain->key) && is_matrix(chain->value) &&
                    chain->result_strides[last] == 1 && chain->value.scale == 1;
  return fits ? chain : std::nullopt;
}

}  // namespace pipit::internal
