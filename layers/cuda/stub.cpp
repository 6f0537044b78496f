// Linked instead of the GPU kernels when pipit is built without the toolkit.
#include "engine/platform/device.h"
#include "layers/gpu_ceilings.h"
#include "layers/gpu_kernels.h"
#include "layers/gpu_peers.h"

namespace pipit::internal {

void register_cuda(Registry&) {}

std::string cudnn_problem() {
  return "this build has no CUDA support";
}

std::vector<PeerConv> cudnn_convolutions(const ConvProblem&, PeerCall, Layout, int) {
  fail_unsupported("{}", cudnn_problem());
}

Ceilings measure_gpu_ceilings(int, const CeilingsProgress&) {
  require_device(DeviceKind::cuda);
  return {};
}

}  // namespace pipit::internal
