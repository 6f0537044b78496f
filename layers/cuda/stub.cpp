// Linked instead of the GPU kernels when pipit is built without the toolkit.
#include "engine/platform/device.h"
#include "layers/gpu_kernels.h"
#include "layers/gpu_peak.h"

namespace pipit {

void register_cuda(Registry&) {}

MachinePeak measure_gpu_peak(int, Precision) {
  require_device(DeviceKind::cuda);
  return {};
}

}  // namespace pipit
