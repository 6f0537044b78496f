// Linked instead of the CUDA device when pipit is built without the toolkit.
#include "engine/device.h"

namespace pipit {

CudaStatus cuda_status() {
  CudaStatus status;
  status.problem = "this build has no CUDA support";
  return status;
}

}  // namespace pipit
