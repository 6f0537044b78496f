// Layer: what a node computes. Immutable attributes plus shape inference; no memory, no device, no kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"

namespace pipit {

/// What a layer asks of the memory order of its operands. The layout pass reads it (layers/fuse/layout.h).
enum class LayoutPreference : std::uint8_t {
  any,            ///< works on every layout; the output takes channels_last if any input has it
  channels_last,  ///< kernels run on NHWC; the input may still be row_major (the first layer of a model)
  row_major,      ///< the meaning depends on row-major order (Reshape, MatMul)
};

/// Arithmetic of one node at the inferred shapes.
struct Work {
  std::int64_t macs = 0;  ///< multiply-accumulates; 1 MAC = 2 FLOP
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

  /// Kernel, stride, padding and fused activation in a short form for tables, for example "3x3 s2 p1 +relu".
  virtual std::string summary() const { return {}; }
};

using LayerPtr = std::shared_ptr<const Layer>;

/// The layer as its concrete class; throws Error when it is another one (a registration mistake).
template <typename L>
const L& layer_as(const Layer& layer) {
  const auto* concrete = dynamic_cast<const L*>(&layer);
  if (concrete == nullptr) fail("layer {} reached a kernel of {}", layer.type(), L::kType);
  return *concrete;
}

}  // namespace pipit
