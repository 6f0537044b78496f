// Linked instead of the GPU kernels when pipit is built without the toolkit.
#include "layers/gpu_kernels.h"

namespace pipit {

void register_cuda(Registry&) {}

}  // namespace pipit
