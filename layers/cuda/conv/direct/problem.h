// A node as the kernels without matrix units see it: what the candidates in floating point and INT8 share.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cuda/conv/direct/launch.h"
#include "layers/ops/conv.h"

namespace pipit::internal::cuda {

/// Refuses outputs and windows that do not fit 32-bit coordinates or one launch.
Refusal refuse_wide_window(const NodeSpec& spec, const Window& window);

/// The geometry and strides; pointers and activation are left to the caller.
DirectConvArgs direct_conv_geometry(const NodeSpec& spec, const ConvAttributes& attributes);

/// Strides of a desc whose layouts coincide may differ; the kernels want channel stride 1.
ImageStrides channels_last_strides(TensorDesc desc);

}  // namespace pipit::internal::cuda
