// Transposes move behind element-wise layers, so that they meet their inverses, and matrix products over the channels of
// an image become 1x1 convolutions, which have residuals, INT8 and more kernels.
#include <algorithm>
#include <numeric>

#include "layers/binary.h"
#include "layers/conv.h"
#include "layers/evaluate.h"
#include "layers/fuse/passes.h"
#include "layers/fuse/rewriter.h"
#include "layers/matmul.h"
#include "layers/rearrange.h"
#include "layers/unary.h"

namespace pipit {

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
      : graph_(std::move(graph)), rewriter_(graph_), moved_(graph_.values().size()) {}

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
    bool pending() const { return base != kNoValue; }
  };

  Moved& moved(ValueId id) { return moved_[static_cast<std::size_t>(id)]; }
  bool pending(ValueId id) { return id != kNoValue && moved(id).pending(); }

  void settle(ValueId id) {
    if (!pending(id)) return;
    const Moved m = std::exchange(moved(id), {});
    rewriter_.forward(id, rewriter_.builder().add1(m.node, transpose(m.permutation), {m.base}, m.value));
  }

  bool visit(const Node& node) {
    if (const auto* layer = layer_if<Transpose>(node)) return join(node, layer->attributes().permutation);
    if (layer_if<Unary>(node) != nullptr) return sinks(node.inputs[0]) && move_unary(node);
    if (layer_if<Binary>(node) != nullptr) return move_binary(node);
    return layer_if<MatMul>(node) != nullptr && convolve(node);
  }

  // Two transposes are one, or none.
  bool join(const Node& node, Permutation permutation) {
    const ValueId x = node.inputs[0];
    const ValueId y = node.outputs[0];
    if (!pending(x)) {
      moved(y) = {rewriter_.map(x), std::move(permutation), node.name, graph_.value(y).name};
      return true;
    }
    const Moved& before = moved(x);
    for (std::int64_t& d : permutation) d = before.permutation[static_cast<std::size_t>(d)];
    ++changes_;
    if (std::ranges::is_sorted(permutation)) {
      rewriter_.forward(y, before.base);
    } else {
      moved(y) = {before.base, std::move(permutation), node.name, graph_.value(y).name};
    }
    return true;
  }

  // Read by nothing else: the transpose would be made twice.
  bool sinks(ValueId id) { return pending(id) && rewriter_.uses(id) == 1; }

  void place(const Node& node, std::vector<ValueId> inputs, const Permutation& permutation) {
    const std::string& name = graph_.value(node.outputs[0]).name;
    const ValueId base = rewriter_.builder().add1(node.name, node.layer, std::move(inputs), name);
    moved(node.outputs[0]) = {base, permutation, node.name + ".transpose", name + ".transposed"};
    ++changes_;
  }

  bool move_unary(const Node& node) {
    const Moved m = std::exchange(moved(node.inputs[0]), {});
    place(node, {m.base}, m.permutation);
    return true;
  }

  bool move_binary(const Node& node) {
    const ValueId a = node.inputs[0];
    const ValueId b = node.inputs[1];
    const Shape& result = graph_.value(node.outputs[0]).desc.shape;
    const auto whole = [&](ValueId id) { return graph_.value(id).desc.shape == result; };
    if (a != b && sinks(a) && sinks(b)) {
      if (!whole(a) || !whole(b) || moved(a).permutation != moved(b).permutation) return false;
      const Permutation permutation = moved(a).permutation;
      const std::vector<ValueId> inputs{moved(a).base, moved(b).base};
      moved(a) = moved(b) = {};
      place(node, inputs, permutation);
      return true;
    }
    for (const bool swapped : {false, true}) {
      const ValueId data = swapped ? b : a;
      const ValueId other = swapped ? a : b;
      if (!sinks(data) || !whole(data) || graph_.value(other).constant == nullptr) continue;
      const Moved m = std::exchange(moved(data), {});
      const ValueId constant = permuted(other, m.permutation);
      place(node, swapped ? std::vector<ValueId>{constant, m.base} : std::vector<ValueId>{m.base, constant},
            m.permutation);
      return true;
    }
    return false;
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
    if (pending(x) && moved(x).permutation != kToChannelsLast) settle(x);
    const ValueId image = pending(x)
                              ? moved(x).base
                              : rewriter_.builder().add1(node.name + ".image", transpose(kToChannelsFirst),
                                                         {rewriter_.map(x)}, node.name + ".image");
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
  int changes_ = 0;
};

}  // namespace

Rewritten sink_transposes(Graph graph) {
  return TransposePass(std::move(graph)).run();
}

}  // namespace pipit
