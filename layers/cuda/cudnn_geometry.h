// A node's geometry as cuDNN takes it.
#pragma once

#include "engine/registry.h"
#include "layers/conv.h"
#include "layers/cuda/cudnn_graph.h"

#if PIPIT_HAVE_CUDNN

namespace pipit::cuda {

/// Sets extents, strides and window of the spec's convolution, all tensors channels_last; one spatial dimension becomes
/// two. channels: of x as it is handed over, at least its own.
void set_geometry(CudnnConv& conv, const ConvAttributes& attributes, const NodeSpec& spec,
                  std::int64_t channels);

}  // namespace pipit::cuda

#endif
