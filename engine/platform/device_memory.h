// Memory of GPUs and streams, without CUDA's headers: pipit/gpu_memory.h says what they do.
#pragma once

#include <cstddef>

namespace pipit::internal {

/// Null for 0 bytes. Throws Error when there is no such GPU or the memory is not to be had.
std::byte* allocate_on_gpu(std::size_t bytes, int gpu);
/// Waits for what uses the memory.
void free_on_gpu(std::byte* data);
/// Copies between the host and GPU `gpu`, after the work on `stream`, and waits for the end.
void copy_on_stream(int gpu, void* to, const void* from, std::size_t bytes, void* stream);
/// Later work on `after` waits for what is on `before` now.
void order_gpu_streams(int gpu, void* before, void* after);

}  // namespace pipit::internal
