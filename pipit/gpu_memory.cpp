#include "pipit/gpu_memory.h"

#include "engine/base/error.h"
#include "engine/platform/device_memory.h"

namespace pipit {

using namespace internal;

GpuMemory::GpuMemory(std::size_t bytes, int gpu)
    : data_(allocate_on_gpu(bytes, gpu), &free_on_gpu), bytes_(bytes), gpu_(gpu) {}

void GpuMemory::copy_from(const void* host, std::size_t bytes, void* stream) {
  if (bytes > bytes_) fail("{} bytes to copy to memory of {} bytes", bytes, bytes_);
  if (bytes > 0) copy_on_stream(gpu_, data_.get(), host, bytes, stream);
}

void GpuMemory::copy_to(void* host, std::size_t bytes, void* stream) const {
  if (bytes > bytes_) fail("{} bytes to copy from memory of {} bytes", bytes, bytes_);
  if (bytes > 0) copy_on_stream(gpu_, host, data_.get(), bytes, stream);
}

void order_streams(int gpu, void* before, void* after) {
  order_gpu_streams(gpu, before, after);
}

}  // namespace pipit
