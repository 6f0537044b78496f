// Transposes move after element-wise layers, so that they meet their inverses and arithmetic meets the convolution
// that takes it, and matrix products over the channels of an image become 1x1 convolutions, which have residuals, INT8
// and more kernels.
#include <algorithm>
#include <numeric>

#include "layers/evaluate.h"
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

using Permutation = std::vector<std::int64_t>;

const Permutation kToChannelsLast{0, 2, 3, 1};
const Permutation kToChannelsFirst{0, 3, 1, 2};

Permutation inverse(const Permutation& p) {
  Permutation result(p.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    result[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
  return result;
}

// Dimension i of transpose_q(transpose_p(x)) is dimension result[i] of x.
Permutation composed(const Permutation& p, const Permutation& q) {
  Permutation result;
  for (const std::int64_t d : q) result.push_back(p[static_cast<std::size_t>(d)]);
  return result;
}

LayerPtr transpose(const Permutation& p) {
  return std::make_shared<Transpose>(TransposeAttributes{p});
}

// [C, O] as [O, C, 1, 1], in blocks that stay in the first-level cache.
Tensor filters(const Tensor& weights) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t channels = weights.shape()[0];
  const std::int64_t outputs = weights.shape()[1];
  Tensor result{TensorDesc{Shape{outputs, channels, 1, 1}}};
  const float* from = weights.values<float>().data();
  float* to = result.values<float>().data();
  for (std::int64_t c = 0; c < channels; c += kBlock) {
    for (std::int64_t o = 0; o < outputs; o += kBlock) {
      for (std::int64_t i = o; i < std::min(outputs, o + kBlock); ++i) {
        for (std::int64_t j = c; j < std::min(channels, c + kBlock); ++j) {
          to[i * channels + j] = from[j * outputs + i];
        }
      }
    }
  }
  return result;
}

class TransposePass {
 public:
  explicit TransposePass(Graph&& graph)
      : graph_(std::move(graph)),
        rewriter_(graph_),
        moved_(graph_.values().size()),
        wanted_(graph_.values().size()) {
    for (std::size_t n = graph_.nodes().size(); n > 0; --n) want(graph_.nodes()[n - 1]);
  }

  Rewritten run() {
    for (const Node& node : graph_.nodes()) {
      if (!visit(node)) {
        for (const ValueId id : node.inputs) settle(id);
        rewriter_.copy(node);
      }
    }
    for (const ValueId id : graph_.outputs()) settle(id);
    return {rewriter_.finish(), changes_};
  }

 private:
  // A value of the source is transpose(base) with `base` of the new graph; made only where something asks for it.
  struct Moved {
    ValueId base = kNoValue;
    Permutation permutation;
    std::string node;  // names of the transpose and its result
    std::string value;
    bool made = false;
  };

  Moved& moved(ValueId id) { return moved_[index(id)]; }
  bool pending(ValueId id) { return id != kNoValue && moved(id).base != kNoValue; }

  void settle(ValueId id) {
    if (!pending(id) || std::exchange(moved(id).made, true)) return;
    const Moved& m = moved(id);
    rewriter_.forward(id, rewriter_.builder().add1(m.node, transpose(m.permutation), {m.base}, m.value));
  }
  // The value in the new graph as it stands in the source.
  ValueId plain(ValueId id) {
    settle(id);
    return rewriter_.map(id);
  }

  // --- what Transposes would meet ---

  // Notes which permutation waits after the node's inputs, as far as transposes can follow.
  void want(const Node& node) {
    if (const auto* layer = layer_if<Transpose>(node))
      return want(node.inputs[0], layer->attributes().permutation);
    if (const auto* reduce = layer_if<Reduce>(node);
        reduce != nullptr && averages_channels_last(node, *reduce)) {
      // In channels_first order it is a global average pool.
      Permutation first(static_cast<std::size_t>(graph_.value(node.inputs[0]).desc.shape.rank()));
      std::iota(first.begin(), first.end(), -1);
      first[0] = 0;
      first[1] = static_cast<std::int64_t>(first.size()) - 1;
      for (std::size_t d = 2; d < first.size(); ++d) first[d] = static_cast<std::int64_t>(d) - 1;
      return want(node.inputs[0], first);
    }
    if (node.outputs.size() != 1 || wanted_[index(node.outputs[0])].empty() || !may_follow(node)) return;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) want(id, wanted_[index(node.outputs[0])]);
    }
  }
  void want(ValueId id, const Permutation& permutation) {
    const Value& value = graph_.value(id);
    if (value.is_constant() || static_cast<std::size_t>(value.desc.shape.rank()) != permutation.size())
      return;
    if (wanted_[index(id)].empty()) wanted_[index(id)] = permutation;
  }
  bool averages_channels_last(const Node& node, const Reduce& layer) const {
    const Shape& x = graph_.value(node.inputs[0]).desc.shape;
    if (layer.attributes().kind != ReduceKind::mean || x.rank() < 4) return false;
    const auto reduced = reduced_dims(layer.attributes(), x);
    for (int d = 0; d < x.rank(); ++d) {
      if (reduced[static_cast<std::size_t>(d)] != (d > 0 && d + 1 < x.rank())) return false;
    }
    return true;
  }
  static bool may_follow(const Node& node) {
    const auto* reduce = layer_if<Reduce>(node);
    const auto* softmax = layer_if<Softmax>(node);
    return layer_if<Unary>(node) || layer_if<Binary>(node) || layer_if<Cast>(node) ||
           layer_if<Quantize>(node) || layer_if<Dequantize>(node) || layer_if<Concat>(node) ||
           layer_if<Pad>(node) || (reduce != nullptr && reduce->attributes().keep_dims) ||
           (softmax != nullptr && !softmax->attributes().flatten_from_axis);
  }

  // --- moving them ---

  bool visit(const Node& node) {
    if (const auto* layer = layer_if<Transpose>(node)) return join(node, layer->attributes().permutation);
    if (node.inputs.empty() || node.outputs.size() != 1) return false;
    if (layer_if<MatMul>(node) != nullptr) return convolve(node);
    if (layer_if<Reshape>(node) != nullptr) return move_reshape(node);
    if (layer_if<Binary>(node) != nullptr) return move_binary(node);
    if (const auto* layer = layer_if<Concat>(node)) return move_concat(node, *layer);
    if (const auto* layer = layer_if<Reduce>(node); layer != nullptr && !layer->attributes().keep_dims)
      return move_reduction(node, *layer);
    return may_follow(node) && sinks(node, node.inputs[0]) && move_function(node);
  }

  // Two transposes are one, or none.
  bool join(const Node& node, Permutation permutation) {
    const ValueId x = node.inputs[0];
    const ValueId y = node.outputs[0];
    if (!pending(x)) {
      if (pad_behind(node, permutation)) return true;
      moved(y) = {rewriter_.map(x), std::move(permutation), node.name, graph_.value(y).name};
      return true;
    }
    const Moved& before = moved(x);
    permutation = composed(before.permutation, permutation);
    ++changes_;
    if (std::ranges::is_sorted(permutation)) {
      rewriter_.forward(y, before.base);
    } else {
      moved(y) = {before.base, std::move(permutation), node.name, graph_.value(y).name};
    }
    return true;
  }

  // Pad -> Transpose is Transpose -> Pad: padding is wanted next to the layer that takes it.
  bool pad_behind(const Node& node, const Permutation& permutation) {
    const int producer = rewriter_.producer(node.inputs[0]);
    if (producer < 0 || rewriter_.uses(node.inputs[0]) != 1) return false;
    const Node& before = graph_.nodes()[static_cast<std::size_t>(producer)];
    const auto* pad = layer_if<Pad>(before);
    if (pad == nullptr) return false;
    const std::string& name = graph_.value(node.inputs[0]).name;
    const ValueId x = rewriter_.builder().add1(node.name, transpose(permutation),
                                               {rewriter_.map(before.inputs[0])}, name + ".transposed");
    rewriter_.emit(before.name, permuted(*pad, permutation), {x}, node.outputs);
    ++changes_;
    return true;
  }
  // The Pad of transpose(x) that is the transpose of the Pad of x.
  static LayerPtr permuted(const Pad& layer, const Permutation& permutation) {
    PadAttributes a = layer.attributes();
    a.begin = composed(layer.attributes().begin, permutation);
    a.end = composed(layer.attributes().end, permutation);
    return std::make_shared<Pad>(std::move(a));
  }

  // Whether the transpose after `id` should move after the node: where it meets its inverse, or where nothing
  // else reads the value, so that it is not made twice. Padding stays next to what takes it, a Softmax as it lies, and
  // what is moved as small as it is.
  bool sinks(const Node& node, ValueId id) {
    if (!pending(id)) return false;
    const bool stays = layer_if<Pad>(node) || layer_if<Softmax>(node) || layer_if<Dequantize>(node);
    if (rewriter_.uses(id) == 1 && !stays) return true;
    const Permutation& wanted = wanted_[index(node.outputs[0])];
    return wanted.size() == moved(id).permutation.size() &&
           std::ranges::is_sorted(composed(moved(id).permutation, wanted));
  }

  void place(const Node& node, LayerPtr layer, std::vector<ValueId> inputs, const Permutation& permutation) {
    const std::string& name = graph_.value(node.outputs[0]).name;
    const ValueId base = rewriter_.builder().add1(node.name, std::move(layer), std::move(inputs), name);
    moved(node.outputs[0]) = {base, permutation, node.name + ".transpose", name + ".transposed"};
    ++changes_;
  }

  // Functions of one tensor.
  bool move_function(const Node& node) {
    const Moved& m = moved(node.inputs[0]);
    LayerPtr layer = node.layer;
    if (const auto* reduce = layer_if<Reduce>(node)) {
      ReduceAttributes a = reduce->attributes();
      turn(a.axes, m.permutation);
      layer = std::make_shared<Reduce>(std::move(a));
    } else if (const auto* softmax = layer_if<Softmax>(node)) {
      SoftmaxAttributes a = softmax->attributes();
      a.axis = m.permutation[static_cast<std::size_t>(
          softmax_groups(a, graph_.value(node.inputs[0]).desc.shape).begin)];
      layer = std::make_shared<Softmax>(a);
    } else if (const auto* pad = layer_if<Pad>(node)) {
      layer = permuted(*pad, inverse(m.permutation));
    }
    place(node, layer, {m.base}, m.permutation);
    return true;
  }

  // Axes of transpose(x) as those of x.
  static void turn(std::vector<std::int64_t>& axes, const Permutation& permutation) {
    const auto rank = static_cast<std::int64_t>(permutation.size());
    for (std::int64_t& axis : axes)
      axis = permutation[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
  }

  // A reduction that drops its dimensions, where what is left is in order.
  bool move_reduction(const Node& node, const Reduce& layer) {
    if (!pending(node.inputs[0])) return false;
    const Moved& m = moved(node.inputs[0]);
    const auto reduced = reduced_dims(layer.attributes(), graph_.value(node.inputs[0]).desc.shape);
    Permutation left;
    for (std::size_t d = 0; d < m.permutation.size(); ++d) {
      if (!reduced[d]) left.push_back(m.permutation[d]);
    }
    if (!std::ranges::is_sorted(left)) return false;
    ReduceAttributes a = layer.attributes();
    turn(a.axes, m.permutation);
    a.keep_dims = true;  // any memory order will do, then
    const std::string& name = graph_.value(node.outputs[0]).name;
    const ValueId kept =
        rewriter_.builder().add1(node.name, std::make_shared<Reduce>(std::move(a)), {m.base}, name + ".kept");
    const Shape& shape = graph_.value(node.outputs[0]).desc.shape;
    rewriter_.emit(node.name + ".reshape", std::make_shared<Reshape>(ReshapeAttributes{shape}), {kept},
                   node.outputs);
    ++changes_;
    return true;
  }

  // What moves only dimensions of extent 1 is a Reshape itself.
  bool move_reshape(const Node& node) {
    if (!pending(node.inputs[0])) return false;
    const Moved& m = moved(node.inputs[0]);
    const Shape& shape = graph_.value(node.inputs[0]).desc.shape;
    Permutation extended;
    for (std::size_t d = 0; d < m.permutation.size(); ++d) {
      if (shape[static_cast<int>(d)] != 1) extended.push_back(m.permutation[d]);
    }
    if (!std::ranges::is_sorted(extended)) return false;
    rewriter_.emit(node.name, node.layer, {m.base}, node.outputs);
    ++changes_;
    return true;
  }

  bool move_concat(const Node& node, const Concat& layer) {
    const ValueId first = node.inputs[0];
    for (const ValueId id : node.inputs) {
      if (!sinks(node, id) || moved(id).permutation != moved(first).permutation) return false;
    }
    const Permutation permutation = moved(first).permutation;
    std::int64_t axis = layer.attributes().axis;
    if (axis < 0) axis += static_cast<std::int64_t>(permutation.size());
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(moved(id).base);
    place(node, std::make_shared<Concat>(ConcatAttributes{permutation[static_cast<std::size_t>(axis)]}),
          std::move(inputs), permutation);
    return true;
  }

  bool move_binary(const Node& node) {
    const Shape& result = graph_.value(node.outputs[0]).desc.shape;
    const auto whole = [&](ValueId id) { return graph_.value(id).desc.shape == result; };
    const auto data =
        std::ranges::find_if(node.inputs, [&](ValueId id) { return whole(id) && sinks(node, id); });
    if (data == node.inputs.end()) return false;
    const Permutation permutation = moved(*data).permutation;
    const auto follows = [&](ValueId id) {
      if (graph_.value(id).constant != nullptr || (pending(id) && moved(id).permutation == permutation))
        return true;
      // A small operand, such as a gate per channel, is turned for it.
      return graph_.value(id).desc.shape.rank() == result.rank() && !whole(id);
    };
    if (!std::ranges::all_of(node.inputs, follows)) return false;
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      if (graph_.value(id).constant != nullptr) {
        inputs.push_back(permuted(id, permutation));
      } else if (pending(id) && moved(id).permutation == permutation) {
        inputs.push_back(moved(id).base);
      } else {
        inputs.push_back(
            rewriter_.builder().add1(node.name + ".operand", transpose(inverse(permutation)), {plain(id)}));
      }
    }
    place(node, node.layer, std::move(inputs), permutation);
    return true;
  }

  // A constant as it meets what is transposed afterwards.
  ValueId permuted(ValueId id, const Permutation& permutation) {
    const Value& value = graph_.value(id);
    if (value.desc.elements() == 1) return rewriter_.map(id);
    const auto rank = permutation.size();
    std::vector<std::int64_t> extents(rank, 1);
    const auto dims = value.desc.shape.dims();
    std::copy(dims.begin(), dims.end(), extents.end() - static_cast<std::ptrdiff_t>(dims.size()));
    const auto full = evaluate(Reshape(ReshapeAttributes{Shape(extents)}), std::array{value.constant});
    const auto tensor = std::make_shared<const Tensor>(to_layout(full[0].view(), Layout::row_major));
    auto turned = evaluate(Transpose(TransposeAttributes{inverse(permutation)}), std::array{tensor});
    return rewriter_.constant(value.name, std::move(turned[0]));
  }

  // y [N, H, W, O] = x [N, H, W, C] times a constant [C, O].
  bool convolve(const Node& node) {
    const ValueId x = node.inputs[0];
    const Value& weights = graph_.value(node.inputs[1]);
    if (graph_.value(x).desc.shape.rank() != 4 || graph_.value(x).desc.dtype != DType::f32 ||
        weights.constant == nullptr || weights.desc.shape.rank() != 2 || weights.desc.elements() == 0 ||
        graph_.value(x).is_constant()) {
      return false;
    }
    const ValueId image = pending(x) && moved(x).permutation == kToChannelsLast
                              ? moved(x).base
                              : rewriter_.builder().add1(node.name + ".image", transpose(kToChannelsFirst),
                                                         {plain(x)}, node.name + ".image");
    const ValueId w = rewriter_.constant(weights.name, filters(*weights.constant));
    const std::string& name = graph_.value(node.outputs[0]).name;
    const ValueId y =
        rewriter_.builder().add1(node.name, std::make_shared<Conv>(ConvAttributes{}), {image, w}, name);
    moved(node.outputs[0]) = {y, kToChannelsLast, node.name + ".transpose", name + ".transposed"};
    if (rewriter_.uses(node.inputs[1]) == 1) graph_.release_constant(node.inputs[1]);
    ++changes_;
    return true;
  }

  Graph graph_;
  Rewriter rewriter_;
  std::vector<Moved> moved_;
  std::vector<Permutation> wanted_;  // what a Transpose after the value does, past layers that it can follow
  int changes_ = 0;
};

}  // namespace

Rewritten sink_transposes(Graph graph) {
  return TransposePass(std::move(graph)).run();
}

}  // namespace pipit::internal
