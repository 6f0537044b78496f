// Units in shared memory as the matrix products read them.
#pragma once

#include <cstdint>

#include "layers/cuda/device/warpgroup_mma_int8.cuh"

namespace pipit::cuda::units {

/// Matrices in shared memory of rows of RowBytes, 16-byte chunks swizzled within 8 or 4 rows (PTX ISA, "Matrix
/// descriptor").
template <int RowBytes>
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  constexpr std::uint64_t kEightRows = RowBytes * 8 >> 4;
  constexpr std::uint64_t kSwizzle = RowBytes == 128 ? 1 : 2;
  return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) | std::uint64_t{1} << 16 | kEightRows << 32 |
         kSwizzle << 62;
}

/// Rows of 256 bytes are for matrices that are loaded, of which eight rows then lie in different banks.
template <int RowBytes>
__device__ __forceinline__ std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> (RowBytes == 256 ? 4 : 3) & (RowBytes == 64 ? 0x30U : 0x70U));
}

}  // namespace pipit::cuda::units
