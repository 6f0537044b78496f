// What the choice of kernels asks of a GPU. Errors of the runtime are thrown as DeviceError (engine/cuda/runtime.h).
#pragma once

namespace pipit::internal::cuda {

/// Multiprocessors of a GPU.
int processors_of(int gpu);
/// Multiprocessors of a GPU from Hopper on; 0 for an older one.
int hopper_processors(int gpu);
/// Whether the current GPU runs kernels that were compiled for Hopper alone: with its copies of tensors, products of
/// warp groups and clusters. All of them are compiled for the same architectures.
bool has_hopper_kernels();

}  // namespace pipit::internal::cuda
