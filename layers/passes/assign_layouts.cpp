#include <algorithm>
#include <array>
#include <limits>

#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/byte_image.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool is_image(const TensorDesc& desc) {
  return desc.shape.rank() >= 3;
}

class LayoutPass {
 public:
  LayoutPass(const Graph& graph, DeviceKind device)
      : rewriter_(graph), device_(device), converted_(graph.values().size(), {kNoValue, kNoValue}) {}

  Rewritten run() {
    const Graph& graph = rewriter_.source();
    for (const Node& node : graph.nodes()) visit(node);
    // Callers read plain row-major results.
    for (const ValueId id : graph.outputs()) {
      if (!graph.value(id).is_constant()) rewriter_.forward(id, in_layout(id, Layout::row_major));
    }
    return {rewriter_.finish(), changes_};
  }

 private:
  const TensorDesc& desc(ValueId old) { return rewriter_.builder().value(rewriter_.map(old)).desc; }

  // The new value for `old` in the wanted layout, converted at most once.
  ValueId in_layout(ValueId old, Layout wanted) {
    const TensorDesc& now = desc(old);
    if (!is_image(now) || now.layout == wanted || rewriter_.source().value(old).is_constant()) {
      return rewriter_.map(old);
    }
    ValueId& converted = converted_[static_cast<std::size_t>(old)][wanted == Layout::channels_last ? 1 : 0];
    if (converted == kNoValue) {
      const std::string name =
          rewriter_.source().value(old).name + (wanted == Layout::channels_last ? ".nhwc" : ".nchw");
      converted = rewriter_.builder().add1(name, std::make_shared<ToLayout>(ToLayoutAttributes{wanted}),
                                           {rewriter_.map(old)});
      rewriter_.builder().set_layout(converted, wanted);
      ++changes_;
    }
    return converted;
  }

  LayoutPreference preference_of(const Node& node) {
    const LayoutPreference preference = own_preference(node);
    return preference == LayoutPreference::any ? preference_at_ends(node) : preference;
  }

  LayoutPreference own_preference(const Node& node) const {
    const bool picks = layer_if<Gather>(node) != nullptr && indices_rank(node) == 1;
    return picks ? LayoutPreference::any : node.layer->layout_preference();
  }

  // The preference of what may have any order: at the ends of the graph, the order in which the smallest value is
  // turned, and of equal ones the order in which channels are moved as planes.
  LayoutPreference preference_at_ends(const Node& node) {
    if (!reads_one_image(node)) return LayoutPreference::any;
    const Graph& graph = rewriter_.source();
    const TensorDesc& x = desc(node.inputs[0]);
    const auto bytes = static_cast<std::int64_t>(x.bytes());
    if (x.layout == Layout::channels_last) {
      const std::int64_t after = least_bytes_to_row_major(node);
      const bool first = bytes < after || (bytes == after && picks_channels(node));
      return first ? LayoutPreference::row_major : LayoutPreference::any;
    }
    // With fewer, a pixel of channels_last is too short to copy fast.
    constexpr std::int64_t kMinChannels = 8;
    const int next = rewriter_.only_consumer(node.outputs[0]);
    if (next < 0 || x.shape[1] < kMinChannels ||
        bytes >= static_cast<std::int64_t>(graph.value(node.outputs[0]).desc.bytes()))
      return LayoutPreference::any;
    const Node& reader = graph.nodes()[static_cast<std::size_t>(next)];
    const bool turned = reader.layer->layout_preference() == LayoutPreference::channels_last &&
                        !reads_planes(reader, node.outputs[0]);
    return turned ? LayoutPreference::channels_last : LayoutPreference::any;
  }

  // One image in, beside constants, and one out.
  bool reads_one_image(const Node& node) const {
    const Graph& graph = rewriter_.source();
    const auto is_data = [&](ValueId id) { return id != kNoValue && !graph.value(id).is_constant(); };
    return node.outputs.size() == 1 && std::ranges::count_if(node.inputs, is_data) == 1 &&
           is_data(node.inputs[0]) && is_image(graph.value(node.inputs[0]).desc) &&
           is_image(graph.value(node.outputs[0]).desc);
  }

  // The fewest bytes of the node's output and the values after it, up to where row_major is needed (an output of the
  // graph, or a layer that wants it), if all of these may have any order; else 0.
  std::int64_t least_bytes_to_row_major(const Node& node) const {
    const Graph& graph = rewriter_.source();
    auto least = std::numeric_limits<std::int64_t>::max();
    for (const Node* last = &node;;) {
      const ValueId y = last->outputs[0];
      least = std::min(least, static_cast<std::int64_t>(graph.value(y).desc.bytes()));
      const int next = rewriter_.only_consumer(y);
      if (next < 0) return rewriter_.uses(y) == 1 && is_output(y) ? least : 0;
      last = &graph.nodes()[static_cast<std::size_t>(next)];
      if (layer_if<Transpose>(*last) != nullptr || reduces_anything(*last)) return 0;
      if (own_preference(*last) == LayoutPreference::row_major) return least;
      if (own_preference(*last) != LayoutPreference::any || !reads_one_image(*last)) return 0;
    }
  }

  bool is_output(ValueId id) const { return std::ranges::count(rewriter_.source().outputs(), id) > 0; }
  static bool picks_channels(const Node& node) { return layer_if<Gather>(node) != nullptr; }

  // The rank of a Gather's indices where they are constants, else -1.
  int indices_rank(const Node& gather) const {
    const Value& indices = rewriter_.source().value(gather.inputs[1]);
    return indices.is_constant() ? indices.desc.shape.rank() : -1;
  }

  // Whether the node's kernels read any memory order, while the result, of fewer dimensions, is row_major.
  bool reduces_anything(const Node& node) const {
    const auto* reduce = layer_if<Reduce>(node);
    const auto* arg_max = layer_if<ArgMax>(node);
    const bool picks_one = layer_if<Gather>(node) != nullptr && indices_rank(node) == 0;
    return picks_one || (reduce != nullptr && !reduce->attributes().keep_dims) ||
           (arg_max != nullptr && !arg_max->attributes().keep_dims);
  }

  void visit(const Node& node) {
    const LayoutPreference preference = preference_of(node);
    std::vector<ValueId> inputs;
    Layout output = Layout::row_major;
    const auto* transpose = layer_if<Transpose>(node);
    if (transpose != nullptr || reduces_anything(node)) {
      for (const ValueId id : node.inputs) inputs.push_back(rewriter_.map(id));
    } else if (preference == LayoutPreference::channels_last) {
      output = Layout::channels_last;
      for (const ValueId id : node.inputs) inputs.push_back(image_operand(node, id));
    } else if (preference == LayoutPreference::row_major) {
      for (const ValueId id : node.inputs) {
        inputs.push_back(id == kNoValue ? kNoValue : in_layout(id, Layout::row_major));
      }
    } else {
      output = common_layout(node);
      const int rank = rewriter_.source().value(node.outputs[0]).desc.shape.rank();
      for (const ValueId id : node.inputs) {
        // Operands of two orders would be read element by element.
        const bool turns = id != kNoValue && ordered(id) && desc(id).shape.rank() == rank;
        inputs.push_back(turns ? in_layout(id, output) : rewriter_.map(id));
      }
    }
    const std::vector<ValueId> outputs = rewriter_.emit(node.name, node.layer, inputs, node.outputs);
    for (const ValueId id : outputs) {
      const TensorDesc& made = rewriter_.builder().value(id).desc;
      if (!is_image(made)) continue;
      if (transpose != nullptr) output = transposed_layout(*transpose, inputs[0], made);
      rewriter_.builder().set_layout(id, output);
    }
  }

  // Whether its order in memory is one of two.
  bool ordered(ValueId id) { return is_image(desc(id)) && !desc(id).layouts_coincide(); }

  // channels_last where an input has it, those first that have no other order as well.
  Layout common_layout(const Node& node) {
    bool rows = false, last = false, either = false;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || !is_image(desc(id))) continue;
      const bool channels_last = desc(id).layout == Layout::channels_last;
      last = last || (channels_last && ordered(id));
      rows = rows || (!channels_last && ordered(id) && !rewriter_.source().value(id).is_constant());
      either = either || channels_last;
    }
    return last || (either && !rows) ? Layout::channels_last : Layout::row_major;
  }

  // The user's image (grey, RGB or RGBA), quantized.
  bool is_quantized_image(ValueId id) {
    constexpr std::int64_t kMaxImageChannels = 4;
    const Graph& graph = rewriter_.source();
    const int producer = rewriter_.producer(id);
    if (producer < 0) return false;
    const Node& node = graph.nodes()[static_cast<std::size_t>(producer)];
    const ValueId image = node.inputs[0];
    const bool quantizes = layer_if<Quantize>(node) != nullptr || layer_if<DynamicQuantize>(node) != nullptr;
    return quantizes && graph.value(id).desc.shape[1] <= kMaxImageChannels && is_user_image(rewriter_, image);
  }

  static bool is_integer_conv(const Node& node) {
    const LayerTraits traits = node.layer->traits();
    return traits.family == LayerFamily::convolution && traits.arithmetic == Arithmetic::integers;
  }

  // Whether a CPU's convolution reads the image, which nothing else does, in row_major order sooner than it would be
  // turned: one tap for enough outputs to fill tiles, over so few channels that their planes are not far apart. Of 256
  // channels reading planes takes as long as turning them, or longer.
  bool reads_planes(const Node& node, ValueId image) const {
    constexpr std::int64_t kMaxChannels = 64;
    constexpr std::int64_t kMinOutputs = 16;
    const Graph& graph = rewriter_.source();
    const auto* conv = layer_if<Conv>(node);
    if (device_ != DeviceKind::cpu || conv == nullptr || image != node.inputs[0] ||
        !graph.value(node.inputs[1]).is_constant() || rewriter_.only_consumer(image) < 0)
      return false;
    Window one_tap;
    one_tap.rank = conv->attributes().window.rank;
    one_tap.dilation = conv->attributes().window.dilation;  // of one tap: without meaning
    one_tap.ceil_mode = conv->attributes().window.ceil_mode;
    return conv->attributes().groups == 1 && conv->attributes().window == one_tap &&
           graph.value(image).desc.shape[1] <= kMaxChannels &&
           graph.value(node.outputs[0]).desc.shape[1] >= kMinOutputs;
  }

  // A convolution reads the user's row-major image itself, quantized or not, and with one tap others too; other
  // operands are brought to channels_last.
  ValueId image_operand(const Node& node, ValueId id) {
    if (id == kNoValue) return kNoValue;
    const auto* conv = layer_if<Conv>(node);
    // One channel a group has kernels for channels_last alone.
    const bool mixes_channels = conv != nullptr && conv->attributes().groups != desc(id).shape[1];
    const bool image = is_user_image(rewriter_, id)
                           ? mixes_channels || (conv != nullptr && desc(id).shape[1] == 1)
                           : is_integer_conv(node) && is_quantized_image(id);
    const bool planes = desc(id).layout == Layout::row_major && reads_planes(node, id);
    if ((image || planes) && id == node.inputs[0]) return rewriter_.map(id);
    return in_layout(id, Layout::channels_last);
  }

  // The output layout in which the transpose moves nothing, where there is one.
  Layout transposed_layout(const Transpose& layer, ValueId input, const TensorDesc& output) {
    const TensorDesc& in = rewriter_.builder().value(input).desc;
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
      if (layer.is_view(in, TensorDesc{output.shape, output.dtype, layout})) return layout;
    }
    return Layout::row_major;
  }

  Rewriter rewriter_;
  DeviceKind device_;
  std::vector<std::array<ValueId, 2>> converted_;  // [old id][is channels_last]
  int changes_ = 0;
};

}  // namespace

Rewritten assign_layouts(const Graph& graph, DeviceKind device) {
  return LayoutPass(graph, device).run();
}

}  // namespace pipit::internal
