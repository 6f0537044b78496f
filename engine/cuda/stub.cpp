// Linked instead of the CUDA device when pipit is built without the toolkit.
#include "engine/plan/tuner.h"
#include "engine/platform/device.h"
#include "engine/platform/device_memory.h"
#include "engine/runtime/device_session.h"
#include "engine/runtime/layer_clock.h"

namespace pipit::internal {

CudaStatus cuda_status() {
  CudaStatus status;
  status.problem = "this build has no CUDA support";
  return status;
}

CudaLibraries cuda_libraries() {
  return {"not usable: this build has no CUDA support", "not usable: this build has no CUDA support"};
}

std::string gpu_description(int) {
  require_device(DeviceKind::cuda);
  return {};
}

std::unique_ptr<KernelTimer> make_cuda_timer(int) {
  require_device(DeviceKind::cuda);
  return nullptr;
}

std::size_t gpu_memory(int) {
  require_device(DeviceKind::cuda);
  return 0;
}

DeviceMemory device_memory(int) {
  require_device(DeviceKind::cuda);
  return {};
}

void select_gpu(int) {
  require_device(DeviceKind::cuda);
}

std::byte* allocate_on_gpu(std::size_t, int) {
  require_device(DeviceKind::cuda);
  return nullptr;
}

void free_on_gpu(std::byte*) {}

void copy_on_stream(int, void*, const void*, std::size_t, void*) {
  require_device(DeviceKind::cuda);
}

void order_gpu_streams(int, void*, void*) {
  require_device(DeviceKind::cuda);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the real one keeps it
std::unique_ptr<DeviceSession> make_cuda_session(std::shared_ptr<const ExecutionPlan>) {
  require_device(DeviceKind::cuda);
  return nullptr;
}

std::unique_ptr<LayerClock> make_cuda_layer_clock(int) {
  require_device(DeviceKind::cuda);
  return nullptr;
}

}  // namespace pipit::internal
