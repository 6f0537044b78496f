// The attributes that convolution and pooling share.
#pragma once

#include "layers/ops/window.h"
#include "models/onnx/read/node_context.h"

namespace pipit::internal::onnx {

/// Reads auto_pad, dilations, kernel_shape, pads, strides and ceil_mode for the node's input 0 [N, C, spatial].
/// `weights_kernel` is the weights' kernel, which kernel_shape must agree with; empty where kernel_shape is required.
Window read_window(NodeContext& node, std::span<const std::int64_t> weights_kernel, const char* layer);

/// The same, but for auto_pad, which comes back unresolved and then without pads.
struct UnresolvedWindow {
  Window window;
  AutoPad auto_pad = AutoPad::notset;
};
UnresolvedWindow read_unresolved_window(NodeContext& node, std::span<const std::int64_t> weights_kernel,
                                        const char* layer);

/// An attribute of `count` integers, one for every spatial dimension or so; all `fallback` where it is absent.
std::vector<std::int64_t> read_list(NodeContext& node, const char* name, std::size_t count,
                                    std::int64_t fallback);

}  // namespace pipit::internal::onnx
