#include "layers/cuda/conv/tensor_map.h"

#include <array>

#include "engine/cuda/runtime.h"

namespace pipit::internal::cuda {

namespace {

CUtensorMapSwizzle swizzle_of(int row_bytes) {
  return row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
}

// The driver is not linked: its functions are asked for by name.
template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  PIPIT_CUDA(cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found));
#else
  PIPIT_CUDA(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess || function == nullptr) fail("the GPU's driver has no {}", name);
  return reinterpret_cast<Function>(function);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    fail("{}: the driver refuses the tensor map (error {})", what, static_cast<int>(result));
}

decltype(&cuTensorMapEncodeTiled) encode_tiled() {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  return encode;
}

}  // namespace

CUtensorMap matrix_map(const void* data, std::int64_t columns, std::int64_t rows, int box_columns,
                       int box_rows) {
  const std::array<cuuint64_t, 2> extents{static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const std::array<cuuint64_t, 1> strides{static_cast<cuuint64_t>(columns)};
  const std::array<cuuint32_t, 2> box{static_cast<cuuint32_t>(box_columns),
                                      static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> steps{1, 1};
  CUtensorMap map{};
  check(encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), extents.data(),
                       strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                       swizzle_of(box_columns), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "a matrix");
  return map;
}

CUtensorMap row_map(const void* x, const ConvShape& shape, int box_bytes, int box_pixels) {
  const auto wide = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const std::int64_t pixel = std::int64_t{shape.in_c} * 2;
  const std::int64_t row = shape.in_w * pixel;
  const std::array<cuuint64_t, 4> extents{wide(pixel), wide(shape.in_w), wide(shape.in_h), wide(shape.batch)};
  const std::array<cuuint64_t, 3> strides{wide(pixel), wide(row), wide(row * shape.in_h)};
  const std::array<cuuint32_t, 4> box{static_cast<cuuint32_t>(box_bytes), static_cast<cuuint32_t>(box_pixels),
                                      1, 1};
  const std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  CUtensorMap map{};
  check(encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void*>(x), extents.data(),
                       strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                       swizzle_of(box_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "rows");
  return map;
}

CUtensorMap patch_map(const void* x, const ConvShape& shape, int channels, int box_channels, int pixels) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const auto wide = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const std::array<cuuint64_t, 4> extents{wide(channels), wide(shape.in_w), wide(shape.in_h),
                                          wide(shape.batch)};
  const std::int64_t row = static_cast<std::int64_t>(shape.in_w) * channels;
  const std::array<cuuint64_t, 3> strides{wide(channels), wide(row), wide(row * shape.in_h)};
  // Where the first and the last window of a row or column of the output begin, from the image's first and last pixel.
  const std::array<int, 2> lower{-shape.pad_w, -shape.pad_h};
  const std::array<int, 2> upper{(shape.out_w - 1) * shape.stride_w - shape.pad_w - (shape.in_w - 1),
                                 (shape.out_h - 1) * shape.stride_h - shape.pad_h - (shape.in_h - 1)};
  const std::array<cuuint32_t, 4> steps{1, static_cast<cuuint32_t>(shape.stride_w),
                                        static_cast<cuuint32_t>(shape.stride_h), 1};
  CUtensorMap map{};
  check(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void*>(x), extents.data(), strides.data(),
               lower.data(), upper.data(), static_cast<cuuint32_t>(box_channels),
               static_cast<cuuint32_t>(pixels), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "patches");
  return map;
}

}  // namespace pipit::internal::cuda
