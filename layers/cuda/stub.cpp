// Linked instead of the GPU kernels when pipit is built without the toolkit.
#include "engine/platform/device.h"
#include "layers/gpu_ceilings.h"
#include "layers/gpu_kernels.h"

namespace pipit {

void register_cuda(Registry&) {}

Ceilings measure_gpu_ceilings(int, const CeilingsProgress&) {
  require_device(DeviceKind::cuda);
  return {};
}

}  // namespace pipit
