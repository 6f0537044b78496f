// What devices this build and this machine have.
#pragma once

#include <string>
#include <vector>

#include "pipit/types.h"

namespace pipit::internal {

/// State of the CUDA side of this build. Never throws; a missing driver is a state, not an error.
struct CudaStatus {
  bool compiled = false;             ///< built with the CUDA toolkit
  std::string toolkit;               ///< "13.0", empty when not compiled
  std::vector<std::string> devices;  ///< names of usable GPUs
  std::string problem;               ///< why there is no usable GPU, empty when there is one
};
CudaStatus cuda_status();

/// The libraries that some GPU kernels use: the version of each, or "not usable: " and the reason. Loads them (hundreds
/// of megabytes are mapped), so ask only in order to tell the user. Never throws.
struct CudaLibraries {
  std::string cublaslt;
  std::string cudnn;
};
CudaLibraries cuda_libraries();

/// The model of this machine's CPU, for example "AMD EPYC 9005", or "unknown CPU".
std::string cpu_description();
/// A GPU's name with the versions of the driver, the CUDA runtime, cuBLASLt and cuDNN: what times of kernels depend on.
/// Loads the libraries. Throws Error when there is no such GPU.
std::string gpu_description(int gpu);

/// Bytes of a GPU's memory. Throws Error when there is no such GPU.
std::size_t gpu_memory(int gpu);

/// What this process holds on a GPU beyond its context, in bytes: buffers, the code of kernels that have run, and what
/// libraries took for themselves. It is the fall of the card's free memory, so it is right where no other process
/// allocates there meanwhile.
struct DeviceMemory {
  std::size_t held = 0;  ///< now
  std::size_t peak = 0;  ///< with the buffers of the worst moment, which is while a plan is made
};
/// Throws Error when there is no such GPU.
DeviceMemory device_memory(int gpu);

/// Makes a GPU current for the calling thread (candidates are asked and kernels created there). Throws Error when
/// there is no such GPU.
void select_gpu(int gpu);

/// Throws Error with the reason and the remedy when the device cannot be used here.
void require_device(DeviceKind device);

}  // namespace pipit::internal
