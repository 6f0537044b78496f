// The families whose candidates are registered beside their kernels, which only nvcc compiles: nothing of them here.
#include "layers/cuda/families.h"

namespace pipit {

void register_cuda_binary(Registry&) {}
void register_cuda_cast(Registry&) {}
void register_cuda_channel_shuffle(Registry&) {}
void register_cuda_movement(Registry&) {}
void register_cuda_normalization(Registry&) {}
void register_cuda_normalize_image(Registry&) {}
void register_cuda_pad_gather(Registry&) {}
void register_cuda_pool(Registry&) {}
void register_cuda_pool_average(Registry&) {}
void register_cuda_pool_max(Registry&) {}
void register_cuda_qelementwise(Registry&) {}
void register_cuda_qfunctions(Registry&) {}
void register_cuda_qpool(Registry&) {}
void register_cuda_qpool_average(Registry&) {}
void register_cuda_reduce(Registry&) {}
void register_cuda_resize(Registry&) {}
void register_cuda_softmax(Registry&) {}
void register_cuda_split_rows(Registry&) {}
void register_cuda_unary(Registry&) {}

}  // namespace pipit
