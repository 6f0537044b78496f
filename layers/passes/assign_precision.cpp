#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "engine/graph/stored_type.h"
#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/gemm.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/byte_image.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool is_constant(const Graph& graph, const Node& node, std::size_t input) {
  return graph.value(node.inputs[input]).is_constant();
}

bool absent_or_constant(const Graph& graph, const Node& node, std::size_t input) {
  return input >= node.inputs.size() || node.inputs[input] == kNoValue || is_constant(graph, node, input);
}

// A convolution that converts an f32 image while it stages it: what the GPU's "stem" takes, or failing that
// "implicit_gemm" (layers/cuda). Sizes are held well below the limits of the latter.
bool converts_image(const Graph& graph, const Node& node) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 26;
  constexpr std::int64_t kMaxWindow = 256;
  const auto* conv = layer_if<Conv>(node);
  if (conv == nullptr || !is_constant(graph, node, 1) || !absent_or_constant(graph, node, 2)) return false;
  const Window& w = conv->attributes().window;
  const TensorDesc& x = graph.value(node.inputs[0]).desc;
  const TensorDesc& y = graph.value(node.outputs[0]).desc;
  if (w.rank != 2 || conv->attributes().groups != 1 || x.shape[1] > 4) return false;
  if (x.elements() > kMaxElements || y.elements() > kMaxElements * 4) return false;
  if (x.elements() == 0 || y.elements() == 0 || y.layout != Layout::channels_last) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    if (w.span(static_cast<int>(i)) > kMaxWindow || w.pad_begin[i] > kMaxWindow || w.pad_end[i] > kMaxWindow)
      return false;
  }
  return true;
}

bool reads_f32(const Node& node) {
  return layer_if<Quantize>(node) != nullptr || layer_if<QConv>(node) != nullptr ||
         layer_if<DynamicQuantize>(node) != nullptr;
}

// An image as the user gives it that only such convolutions read, and only as their image, beside what reads f32
// anyway.
bool read_as_image(const Graph& graph, ValueId id) {
  const auto& outputs = graph.outputs();
  if (std::find(outputs.begin(), outputs.end(), id) != outputs.end()) return false;
  int readers = 0;
  for (const Node& node : graph.nodes()) {
    const auto uses = std::count(node.inputs.begin(), node.inputs.end(), id);
    if (uses == 0 || reads_f32(node)) continue;
    if (uses > 1 || node.inputs[0] != id || !converts_image(graph, node)) return false;
    ++readers;
  }
  return readers > 0;
}

// The result of a matrix product that nothing but the graph's output reads.
bool written_wide(const Rewriter& rewriter, ValueId id) {
  const Graph& graph = rewriter.source();
  if (rewriter.producer(id) < 0 || rewriter.uses(id) != 1) return false;
  const Node& node = graph.nodes()[static_cast<std::size_t>(rewriter.producer(id))];
  return (layer_if<Gemm>(node) != nullptr || layer_if<WLinear>(node) != nullptr) &&
         !is_constant(graph, node, 0) && is_constant(graph, node, 1) && absent_or_constant(graph, node, 2) &&
         graph.value(id).desc.elements() > 0;
}

// Which f32 values are stored in 16 bits: in fp16 and bf16, and on a GPU in w8, w4 and int8_dynamic, all of them. In
// INT8 those of regions with a matrix product in floating point, where a region is what floating-point layers connect:
// everything else there (a shortcut between two INT8 layers, the logits) gains little and stays exact. A node that is
// to be f32 keeps its whole region so, else one that is to be bf16 makes its whole region bf16. On a GPU other regions
// are f16, on the CPU they are f32.
class HalfValues {
 public:
  HalfValues(const Graph& graph, Precision precision, DeviceKind device, const KeptNodes& kept)
      : graph_(graph),
        region_(graph.values().size()),
        type_(graph.values().size(), stored_type(precision, device)) {
    std::iota(region_.begin(), region_.end(), std::size_t{0});
    for (const Node& node : graph.nodes()) {
      // Scales of activations are exact.
      if (layer_if<DynamicQuantize>(node) != nullptr)
        type_[static_cast<std::size_t>(node.outputs[1])] = DType::f32;
    }
    if (precision != Precision::int8) return;
    for (const Node& node : graph.nodes()) {
      if (!computes_in_integers(node)) connect(node);
    }
    std::vector<bool> products(type_.size(), false), wide(type_.size(), false);
    std::vector<DType> narrow(type_.size(), device == DeviceKind::cuda ? DType::f16 : DType::f32);
    for (const Node& node : graph.nodes()) {
      const std::size_t region = region_of(node);
      if (region == kNone) continue;
      if (node.layer->traits().family != LayerFamily::other) products[region] = true;
      if (kept.f32.contains(node.name)) wide[region] = true;
      if (kept.bf16.contains(node.name)) narrow[region] = DType::bf16;
    }
    for (std::size_t v = 0; v < type_.size(); ++v) {
      const std::size_t region = find(v);
      if (products[region] && !wide[region]) type_[v] = narrow[region];
    }
    for (const Node& node : graph.nodes()) {
      const std::size_t region = region_of(node);
      if (region != kNone && wide[region] && kept.bf16.contains(node.name)) overruled_.push_back(node.name);
    }
  }
  bool operator[](ValueId id) const {
    return is_stored_float(type(id)) && graph_.value(id).desc.dtype == DType::f32;
  }
  /// Of a value that is stored in 16 bits.
  DType type(ValueId id) const { return type_[static_cast<std::size_t>(id)]; }
  bool any() const { return std::ranges::any_of(type_, is_stored_float); }
  /// Nodes that are to be bf16 in a region that is f32.
  const std::vector<std::string>& overruled() const { return overruled_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  static bool computes_in_integers(const Node& node) {
    return node.layer->traits().arithmetic != Arithmetic::floating;
  }
  template <typename Body>
  void for_each_value(const Node& node, Body&& body) const {
    for (const std::vector<ValueId>* list : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *list) {
        if (id == kNoValue || graph_.value(id).is_constant() || graph_.value(id).desc.dtype != DType::f32)
          continue;
        body(static_cast<std::size_t>(id));
      }
    }
  }
  std::size_t find(std::size_t v) {
    while (region_[v] != v) v = region_[v] = region_[region_[v]];
    return v;
  }
  void connect(const Node& node) {
    std::size_t first = kNone;
    for_each_value(node, [&](std::size_t v) {
      if (first == kNone) first = find(v);
      region_[find(v)] = first;
    });
  }
  std::size_t region_of(const Node& node) {
    std::size_t region = kNone;
    if (!computes_in_integers(node)) for_each_value(node, [&](std::size_t v) { region = find(v); });
    return region;
  }

  const Graph& graph_;
  std::vector<std::size_t> region_;  // union-find
  std::vector<DType> type_;
  std::vector<std::string> overruled_;
};

// In INT8: a first convolution quantizes the user's f32 image itself, where it has up to four channels.
// The image whose Quantize only this convolution reads, as its x; else kNoValue.
ValueId image_of(const Rewriter& rewriter, const Node& node) {
  constexpr std::int64_t kMaxImageChannels = 4;
  const Graph& graph = rewriter.source();
  const auto* conv = layer_if<QConv>(node);
  if (conv == nullptr || rewriter.uses(node.inputs[0]) != 1) return kNoValue;
  const int producer = rewriter.producer(node.inputs[0]);
  if (producer < 0) return kNoValue;
  const Node& before = graph.nodes()[static_cast<std::size_t>(producer)];
  const auto* quantize = layer_if<Quantize>(before);
  if (quantize == nullptr || !(quantize->y() == conv->attributes().x)) return kNoValue;
  const ValueId image = before.inputs[0];
  if (!is_user_image(rewriter, image)) return kNoValue;
  const Shape& shape = graph.value(image).desc.shape;
  return shape.rank() == 4 && shape[1] <= kMaxImageChannels ? image : kNoValue;
}

Rewritten fuse_quantized_image(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const ValueId image = image_of(rewriter, node);
    if (image == kNoValue) {
      rewriter.copy(node);
    } else {
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
      inputs[0] = rewriter.map(image);
      rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
      ++changes;
    }
    for (const ValueId old : node.outputs)
      rewriter.builder().set_layout(rewriter.map(old), graph.value(old).desc.layout);
  }
  return {rewriter.finish(), changes};
}

// Shape inference knows f32 only: 16 bits are how values are stored, not what they mean. The pass therefore builds
// the graph in f32 and changes the element types of the finished values.
Rewritten store_halves(const Graph& graph, Precision precision, DeviceKind device, const KeptNodes& kept) {
  Rewriter rewriter(graph);
  GraphBuilder& builder = rewriter.builder();
  const HalfValues half(graph, precision, device, kept);
  const bool gpu = device == DeviceKind::cuda;
  const auto narrow_name = [&](ValueId id) {
    return fmt::format("{}.{}", graph.value(id).name, dtype_name(half.type(id)));
  };
  std::vector<std::pair<ValueId, DType>> halves;
  int changes = 0;
  const auto convert = [&](ValueId id, const std::string& name, DType to) {
    const ValueId result = builder.add1(name, std::make_shared<Cast>(CastAttributes{to}), {id});
    builder.set_layout(result, builder.value(id).desc.layout);
    ++changes;
    return result;
  };
  std::vector<ValueId> wide;  // of the source: values that stay f32
  if (gpu && half.any()) {
    const auto& outputs = graph.outputs();
    std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(wide),
                 [&](ValueId id) { return written_wide(rewriter, id); });
  }
  const auto stored_half = [&](ValueId id) {
    return half[id] && std::find(wide.begin(), wide.end(), id) == wide.end();
  };
  std::map<ValueId, ValueId> images;  // images of the user that are converted, as they were
  const auto take_in = [&](ValueId id) {
    if (!half[id] || (gpu && read_as_image(graph, id))) return;
    const ValueId image = rewriter.map(id);
    const ValueId result = convert(image, narrow_name(id), half.type(id));
    builder.set_dtype(result, DType::f32);
    halves.emplace_back(result, half.type(id));
    images[id] = image;
    rewriter.forward(id, result);
  };
  for (const ValueId id : graph.inputs()) take_in(id);
  for (const Node& node : graph.nodes()) {
    const auto image = reads_f32(node) ? images.find(node.inputs[0]) : images.end();
    if (image != images.end()) {
      // The user's image is not rounded twice.
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
      inputs[0] = image->second;
      rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
    } else {
      rewriter.copy(node);
    }
    for (const ValueId old : node.outputs) {
      const ValueId id = rewriter.map(old);
      builder.set_layout(id, graph.value(old).desc.layout);
      if (is_user_image(rewriter, old)) {
        take_in(old);
      } else if (stored_half(old)) {
        halves.emplace_back(id, half.type(old));
      }
    }
  }
  for (const ValueId old : graph.outputs()) {
    if (!stored_half(old) || graph.value(old).is_constant()) continue;
    const ValueId id = rewriter.map(old);
    builder.rename(id, narrow_name(old));
    rewriter.forward(old, convert(id, graph.value(old).name, DType::f32));
  }
  for (const auto& [id, type] : halves) builder.set_dtype(id, type);
  Rewritten result{rewriter.finish(), changes};
  for (const std::string& node : half.overruled())
    result.notes.push_back(
        fmt::format("layer '{}' is kept in bf16, but computes in f32 like a layer that is kept in fp32 and "
                    "that floating point connects with it",
                    node));
  return result;
}

}  // namespace

Rewritten assign_precision(const Graph& graph, Precision precision, DeviceKind device,
                           const KeptNodes& kept) {
  const bool gpu = device == DeviceKind::cuda;
  // In fp32 the graph may be of a quantized file.
  const bool narrow = is_stored_float(stored_type(precision, device));
  Rewritten result = gpu && !narrow ? fuse_quantized_image(graph) : Rewritten{graph};
  const bool mixes = precision == Precision::int8 && (gpu || !kept.bf16.empty());
  if (!narrow && !mixes) return result;
  Rewritten halves = store_halves(result.graph, precision, device, kept);
  halves.changes += result.changes;
  return halves;
}

}  // namespace pipit::internal
