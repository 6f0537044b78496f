#include "engine/device.h"

namespace pipit {

void require_device(DeviceKind device) {
  if (device == DeviceKind::cpu) return;
  const CudaStatus status = cuda_status();
  if (!status.compiled) {
    fail(
        "device cuda: this build has no CUDA support; install the CUDA toolkit and configure with "
        "-DPIPIT_CUDA=ON");
  }
  if (!status.problem.empty()) fail("device cuda: {}", status.problem);
}

}  // namespace pipit
