#include <algorithm>

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/libraries/lt_gemm.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 132 * 32;

template <typename T>
__device__ float term(const Addend& addend, std::int64_t row, std::int64_t column) {
  if (addend.data == nullptr) return 0.0F;
  const T* data = static_cast<const T*>(addend.data);
  return addend.scale * load(data[row * addend.row_step + column * addend.column_step]);
}

template <typename T>
__global__ void epilogue(T* y, std::int64_t rows, std::int64_t columns, Addend first, Addend second,
                         float low, float high) {
  const std::int64_t count = rows * columns;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const std::int64_t row = i / columns;
    const std::int64_t column = i - row * columns;
    const float sum = load(y[i]) + term<T>(first, row, column) + term<T>(second, row, column);
    y[i] = store<T>(clamp_value(sum, low, high));
  }
}

}  // namespace

void apply_epilogue(void* y, DType type, std::int64_t rows, std::int64_t columns, const Addend& first,
                    const Addend& second, const Clamp& clamp, cudaStream_t stream) {
  const std::int64_t blocks = std::min((rows * columns + kThreads - 1) / kThreads, kMaxBlocks);
  if (blocks == 0) return;
  const auto grid = static_cast<unsigned>(blocks);
  if (type == DType::f16) {
    epilogue<<<grid, kThreads, 0, stream>>>(static_cast<__half*>(y), rows, columns, first, second, clamp.low,
                                            clamp.high);
  } else if (type == DType::bf16) {
    epilogue<<<grid, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(y), rows, columns, first, second,
                                            clamp.low, clamp.high);
  } else {
    epilogue<<<grid, kThreads, 0, stream>>>(static_cast<float*>(y), rows, columns, first, second, clamp.low,
                                            clamp.high);
  }
  check_launch("epilogue");
}

}  // namespace pipit::internal::cuda
