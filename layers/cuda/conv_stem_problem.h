// A node as the kernels for images of few channels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include "engine/registry.h"
#include "layers/conv.h"
#include "layers/cuda/conv_stem_pack.h"

namespace pipit::cuda {

/// What no such kernel handles, but for its shared memory.
Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes);
Refusal refuse_stem_memory(const StemArgs& args);

/// Where the elements of x lie.
void set_stem_strides(StemArgs& args, const TensorDesc& x);

}  // namespace pipit::cuda
