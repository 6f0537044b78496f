#include "layers/cuda/cuda.h"
#include "layers/cuda/families.h"

namespace pipit {

void register_cuda(Registry& registry) {
  register_cuda_conv_implicit_gemm(registry);
  register_cuda_conv_depthwise(registry);
  register_cuda_conv_direct(registry);
}

}  // namespace pipit
