// What the candidates "stem" (conv_stem.cpp, qconv_stem.cpp) ask of their kernels (conv_stem.cu, qconv_stem.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "layers/cuda/conv/conv_stem_pack.h"

namespace pipit::cuda {

/// Blocks of the kernel that the current GPU runs at once, and whether its launches may overlap; allows it its shared
/// memory.
cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks, bool& overlap);
/// After prepare_stem: launches only.
cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream);

/// The same in INT8.
cudaError_t prepare_qstem(const StemArgs& args, int& resident_blocks, bool& overlap);
cudaError_t launch_qstem(const StemArgs& args, int resident_blocks, cudaStream_t stream);

}  // namespace pipit::cuda
