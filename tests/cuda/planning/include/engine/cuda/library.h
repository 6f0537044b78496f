// Replaces engine/cuda/library.h, without the libraries' headers: a cuBLASLt that has an algorithm for everything,
// and no cuDNN.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>

#define PIPIT_HAVE_CUDNN 0

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque_t*;
struct cublasLtMatmulAlgo_t {};

namespace pipit::internal::cuda {

struct CublasLt {
  std::string problem;
};
const CublasLt& cublaslt();

struct CudnnState {
  std::string problem;
  std::string version;
};
const CudnnState& cudnn_state();

void forget_stream(cudaStream_t stream) noexcept;
std::unique_lock<std::recursive_mutex> lock_for_capture();

}  // namespace pipit::internal::cuda
