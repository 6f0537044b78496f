// The attributes that convolution and pooling share.
#pragma once

#include "layers/window.h"
#include "models/onnx/node_context.h"

namespace pipit::onnx {

/// Reads auto_pad, dilations, kernel_shape, pads, strides and ceil_mode for the node's input 0 [N, C, spatial].
/// `weights_kernel` is the weights' kernel, which kernel_shape must agree with; empty where kernel_shape is required.
Window read_window(NodeContext& node, std::span<const std::int64_t> weights_kernel, const char* layer);

}  // namespace pipit::onnx
