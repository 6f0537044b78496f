/// @file
/// Memory on a GPU and the order of streams, for users of ModelSession::run_on_device() without the CUDA toolkit.
#pragma once

#include <cstddef>
#include <memory>

#include "pipit/export.h"

namespace pipit {

/// Memory of one GPU, aligned to 256 bytes and uninitialized. Can be moved, not copied; one that was moved from may
/// only be assigned to or destroyed.
class PIPIT_API GpuMemory {
 public:
  /// No memory.
  GpuMemory() = default;
  /// Allocates `bytes` on GPU `gpu`, as LoadOptions::gpus numbers them. Throws Error if there is no such GPU, if the
  /// build has no support for GPUs and if the memory is not to be had.
  GpuMemory(std::size_t bytes, int gpu);

  /// The address on the GPU; null without memory or for 0 bytes. It may be freed while runs use it: freeing waits for
  /// them.
  void* data() const { return data_.get(); }
  /// Its size.
  std::size_t bytes() const { return bytes_; }
  /// The GPU that it is on.
  int gpu() const { return gpu_; }

  /// Copies `bytes` from `host` after all work that is on `stream` (a cudaStream_t; null: the default stream), and
  /// waits until they are there. Throws Error for more bytes than there are.
  void copy_from(const void* host, std::size_t bytes, void* stream = nullptr);
  /// Copies `bytes` to `host` after all work that is on `stream`, and waits until they are there. Throws Error for more
  /// bytes than there are.
  void copy_to(void* host, std::size_t bytes, void* stream = nullptr) const;

 private:
  std::unique_ptr<std::byte, void (*)(std::byte*)> data_{nullptr, nullptr};
  std::size_t bytes_ = 0;
  int gpu_ = 0;
};

/// Work that is queued on `after` from now on begins when the work that is on `before` now has ended. Both are streams
/// (cudaStream_t) of GPU `gpu`; null is its default stream. Does not wait. Throws Error for what is no stream, and as
/// GpuMemory does.
PIPIT_API void order_streams(int gpu, void* before, void* after);

}  // namespace pipit
