// The driver's functions that make tensor maps, for layers/cuda/conv/tensor_map.cpp, which is compiled as it is; and
// what else it asks the engine for. The rules are those of the CUDA Driver API, "Tensor Map Object Management".
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>

#include "tests/cuda/emulation/tensor_map.h"

namespace pipit::internal::test::emulation {
namespace {

int bytes_of(CUtensorMapSwizzle s) {
  return s == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
         : s == CU_TENSOR_MAP_SWIZZLE_64B ? 64
         : s == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                          : 0;
}

// Only bytes are copied here: maps of other types are refused.
bool fill(TensorMap& m, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* extents,
          const cuuint64_t* strides, const cuuint32_t* steps, CUtensorMapInterleave interleave,
          CUtensorMapSwizzle swizzle) {
  if (type != CU_TENSOR_MAP_DATA_TYPE_UINT8 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || rank < 1 ||
      rank > 5)
    return false;
  if (base == nullptr || reinterpret_cast<std::uintptr_t>(base) % 16 != 0) return false;
  m.rank = static_cast<std::uint8_t>(rank);
  m.swizzle = static_cast<std::uint8_t>(bytes_of(swizzle));
  m.base = reinterpret_cast<std::uint64_t>(base);
  for (cuuint32_t d = 0; d < rank; ++d) {
    if (extents[d] == 0 || extents[d] > (1ULL << 32) || steps[d] == 0 || steps[d] > 8) return false;
    m.extent[d] = static_cast<std::uint32_t>(extents[d]);
    m.step[d] = static_cast<std::uint8_t>(steps[d]);
    if (d == 0) continue;
    if (strides[d - 1] % 16 != 0 || strides[d - 1] >= (1ULL << 40)) return false;
    m.stride[d - 1] = strides[d - 1];
  }
  return true;
}

// A row of the box in bytes: chunks of 16, and within the swizzle's pattern.
bool row_fits(const TensorMap& m, cuuint32_t bytes) {
  return bytes != 0 && bytes <= 256 && bytes % 16 == 0 && (m.swizzle == 0 || bytes <= m.swizzle);
}

CUresult stored(CUtensorMap* to, const TensorMap& m) {
  std::memset(to, 0, sizeof *to);
  std::memcpy(to, &m, sizeof m);
  return CUDA_SUCCESS;
}

CUresult encode_tiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* base,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  TensorMap m;
  if (!fill(m, type, rank, base, extents, strides, steps, interleave, swizzle) || !row_fits(m, box[0]))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t d = 0; d < rank; ++d) {
    if (box[d] == 0 || box[d] > 256) return CUDA_ERROR_INVALID_VALUE;
    m.box[d] = static_cast<std::uint16_t>(box[d]);
  }
  return stored(to, m);
}

CUresult encode_im2col(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* base,
                       const cuuint64_t* extents, const cuuint64_t* strides, const int* lower,
                       const int* upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill) {
  TensorMap m;
  if (rank < 3 || !fill(m, type, rank, base, extents, strides, steps, interleave, swizzle) ||
      !row_fits(m, channels))
    return CUDA_ERROR_INVALID_VALUE;
  if (pixels == 0 || pixels > 1024) return CUDA_ERROR_INVALID_VALUE;
  m.im2col = 1;
  m.box[0] = static_cast<std::uint16_t>(channels);
  m.box[1] = static_cast<std::uint16_t>(pixels);
  const int limit = rank == 3 ? 32768 : rank == 4 ? 128 : 16;
  for (cuuint32_t d = 0; d + 2 < rank; ++d) {
    for (const int corner : {lower[d], upper[d]}) {
      if (corner < -limit || corner >= limit) return CUDA_ERROR_INVALID_VALUE;
    }
    m.lower[d] = static_cast<std::int16_t>(lower[d]), m.upper[d] = static_cast<std::int16_t>(upper[d]);
  }
  return stored(to, m);
}

cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  *function = std::strcmp(name, "cuTensorMapEncodeTiled") == 0    ? reinterpret_cast<void*>(&encode_tiled)
              : std::strcmp(name, "cuTensorMapEncodeIm2col") == 0 ? reinterpret_cast<void*>(&encode_im2col)
                                                                  : nullptr;
  *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // namespace
}  // namespace pipit::internal::test::emulation

// Replace the CUDA runtime's.
#if CUDART_VERSION >= 12050
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  return pipit::internal::test::emulation::find(name, function, found);
}
#else
extern "C" cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                               cudaDriverEntryPointQueryResult* found) {
  return pipit::internal::test::emulation::find(name, function, found);
}
#endif

namespace pipit::internal::cuda {
void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(call);
}
}  // namespace pipit::internal::cuda
