// A node's geometry as cuDNN takes it.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cuda/libraries/cudnn_graph.h"
#include "layers/ops/conv.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// Sets extents, strides and window of the spec's convolution, all tensors channels_last; one spatial dimension becomes
/// two. channels: of x as it is handed over, at least its own.
void set_geometry(CudnnConv& conv, const ConvAttributes& attributes, const NodeSpec& spec,
                  std::int64_t channels);

}  // namespace pipit::cuda

#endif
