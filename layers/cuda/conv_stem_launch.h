// What the candidate "stem" (conv_stem.cpp) asks of its kernel (conv_stem.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "layers/cuda/conv_stem_pack.h"

namespace pipit::cuda {

/// Blocks of the kernel that the current GPU runs at once; allows it its shared memory.
cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks);
/// After prepare_stem: launches only.
cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream);

}  // namespace pipit::cuda
