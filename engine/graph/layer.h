// Layer: what a node computes. Immutable attributes plus shape inference; no memory, no device, no kernels.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/attributes.h"
#include "engine/graph/tensor.h"

namespace pipit::internal {

/// What a layer asks of the memory order of its operands. The layout pass reads it (layers/passes/passes.h).
enum class LayoutPreference : std::uint8_t {
  any,            ///< works on every layout; the output takes channels_last if any input has it
  channels_last,  ///< kernels run on NHWC; the input may still be row_major (the first layer of a model)
  row_major,      ///< the meaning depends on row-major order (Reshape, MatMul)
};

/// Arithmetic of one node at the inferred shapes.
struct Work {
  std::int64_t macs = 0;  ///< multiply-accumulates; 1 MAC = 2 FLOP
  /// The share of the elements of input 0 that results depend on: less than 1 where windows or indices leave some out.
  double read_share = 1;
};

/// What kind of work a layer is, in whatever precision.
enum class LayerFamily : std::uint8_t {
  convolution,
  linear,  ///< other products of matrices
  other,
};

enum class Arithmetic : std::uint8_t {
  floating,  ///< or none: values are only moved
  integers,  ///< on 8-bit integers
  between,   ///< from one of these to the other
};

/// Whether the elements of the outputs are elements of input 0.
enum class Movement : std::uint8_t {
  none,        ///< no: they are computed
  rearranged,  ///< each of them in another place, some perhaps not at all (Transpose, Slice)
  repeated,    ///< some of them several times (Expand, Gather)
  selected,    ///< of several one, or a constant beside them (maximum pooling, Pad)
};

/// What others ask of a layer, so that no code keeps a list of types.
struct LayerTraits {
  LayerFamily family = LayerFamily::other;
  Arithmetic arithmetic = Arithmetic::floating;
  std::optional<std::size_t> weights = {};   ///< which input they are
  std::optional<std::size_t> residual = {};  ///< which input is added to the result, where it is there
  Movement movement = Movement::none;
  /// Channel c of the result depends on channel c of the inputs alone, and is finite where that is.
  bool channelwise = false;
};

/// The inputs of a node in a graph that computes several samples, the entries of dimension 0, in one run.
struct SampledInputs {
  std::span<const TensorDesc* const> descs;  ///< null where an optional input is absent
  /// Per input: entry n of dimension 0 belongs to sample n. Otherwise (weights, say) all samples read the whole of it.
  const std::vector<bool>& by_sample;
};

class Layer {
 public:
  virtual ~Layer() = default;

  /// Registry key and the name shown to users, for example "Conv".
  virtual std::string_view type() const = 0;

  /// Descs of the outputs for the given inputs, all row_major (the layout pass decides layouts later).
  /// An absent optional input is a null pointer.
  /// Throws Error naming the offending values when the inputs do not fit.
  virtual std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const = 0;

  virtual LayoutPreference layout_preference() const { return LayoutPreference::any; }

  /// Multiply-accumulates for the given inputs and outputs; 0 for layers that only move or compare data.
  virtual Work work(std::span<const TensorDesc* const> /*inputs*/,
                    std::span<const TensorDesc> /*outputs*/) const {
    return {};
  }

  /// True when output 0 may overwrite input `index` element by element (same shape, dtype and layout are
  /// checked by the planner).
  virtual bool may_run_in_place(int /*index*/) const { return false; }

  /// True when output 0 is input 0's memory under another desc, so that no kernel is needed. Both descs have
  /// their final layouts.
  virtual bool is_view(const TensorDesc& /*input*/, const TensorDesc& /*output*/) const { return false; }

  /// True when entry n of dimension 0 of every output is computed from entry n of the inputs that are by sample and
  /// from the others, for every n alike: then some of the samples can be computed without the rest
  /// (engine/plan/micro_batch.h). Asked only where at least one input is by sample.
  virtual bool is_batch_independent(const SampledInputs& /*inputs*/) const { return false; }

  /// The layer for inputs with another number of samples, where attributes name that number; null where they do not.
  /// Asked only where is_batch_independent().
  virtual std::shared_ptr<const Layer> for_samples(std::int64_t /*samples*/) const { return nullptr; }

  virtual LayerTraits traits() const { return {}; }

  /// Kernel, stride, padding and fused activation in a short form for tables, for example "3x3 s2 p1 +relu". For
  /// people: it leaves out what they need not see.
  virtual std::string summary() const { return {}; }

  /// Type and all attributes: the same text for layers that compute the same, and only for them. With Reals::kind it is
  /// the same for layers that take equally long.
  std::string identity(Reals reals = Reals::exact) const {
    AttributeText text(reals);
    add_attributes(text);
    return std::string(type()) + text.take();
  }

 private:
  virtual void add_attributes(AttributeText& text) const = 0;
};

using LayerPtr = std::shared_ptr<const Layer>;

/// What layer L, named L::kType, is when it is all in a plain struct of attributes.
template <typename L, typename Attributes>
class LayerOf : public Layer {
 public:
  explicit LayerOf(Attributes attributes) : attributes_(std::move(attributes)) {}
  const Attributes& attributes() const { return attributes_; }
  std::string_view type() const final { return L::kType; }

 protected:
  Attributes attributes_;

 private:
  void add_attributes(AttributeText& text) const final { text.add(attributes_); }
};

struct NoAttributes {};

template <typename L>
class LayerOf<L, NoAttributes> : public Layer {
 public:
  std::string_view type() const final { return L::kType; }

 private:
  void add_attributes(AttributeText& /*text*/) const final {}
};

/// The layer as its concrete class; throws Error when it is another one (a registration mistake).
template <typename L>
const L& layer_as(const Layer& layer) {
  const auto* concrete = dynamic_cast<const L*>(&layer);
  if (concrete == nullptr) fail("layer {} reached a kernel of {}", layer.type(), L::kType);
  return *concrete;
}

}  // namespace pipit::internal
