// What "unpacked_gemm" runs before the library's product (plan.h), without its launch.
#pragma once

#include "layers/cuda/conv/unpacked_gemm/plan.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

namespace unpack {

/// A byte of a word as a float, less `zero`. Exact: 2^23 and the byte is a float.
__device__ __forceinline__ float whole(std::uint32_t word, int byte, float zero) {
  constexpr std::uint32_t kBase = 0x4B000000;  // 2^23
  return __fadd_rn(__uint_as_float(__byte_perm(word, kBase, 0x7440 + byte)), -8388608.0F - zero);
}

/// The eight weights of a unit as halves. They are stored as two's complements.
__device__ __forceinline__ uint4 halves(uint2 bytes, float scale) {
  const std::uint32_t words[2] = {bytes.x ^ 0x80808080U, bytes.y ^ 0x80808080U};
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = words[i / 2];
    const int byte = i % 2 * 2;
    pairs[i] = to_word<__half>(__fmul_rn(whole(word, byte, 128), scale),
                               __fmul_rn(whole(word, byte + 1, 128), scale));
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
__device__ __forceinline__ uint4 halves(std::uint32_t half_bytes, float scale) {
  const std::uint32_t moved = half_bytes ^ 0x88888888U;
  const std::uint32_t even = moved & 0x0F0F0F0FU, odd = moved >> 4 & 0x0F0F0F0FU;
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = to_word<__half>(__fmul_rn(whole(even, i, 8), scale), __fmul_rn(whole(odd, i, 8), scale));
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/// Unit `unit` of the copied rows of x: zeros in the padding and after the last channel.
__device__ __forceinline__ uint4 read_unit(const UnpackArgs& g, int unit) {
  const int row = g.units_of_row.divide(unit);
  const int k = (unit - row * static_cast<int>(g.units_of_row.value)) * kUnpackUnit;
  int begin = row * g.depth;
  if (g.pixels != nullptr) {
    const int image = g.positions.divide(row);
    const int pixel = __ldg(g.pixels + row - image * static_cast<int>(g.positions.value));
    if (pixel < 0) return make_uint4(0, 0, 0, 0);
    begin = image * g.image + pixel;
  }
  const auto* from = static_cast<const unsigned short*>(g.x) + begin + k;
  if (g.depth % kUnpackUnit == 0) return *reinterpret_cast<const uint4*>(from);
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = k + 2 * i < g.depth ? from[2 * i] : 0U;
    if (k + 2 * i + 1 < g.depth) words[i] |= static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Where a block's first thread begins; its others follow, and each goes on by as many as there are threads.
__device__ __forceinline__ int first_unit(int block) {
  return block * kUnpackThreads * kUnpackUnits + static_cast<int>(threadIdx.x);
}

__device__ __forceinline__ void copy_rows(const UnpackArgs& g, int block) {
  const int first = first_unit(block);
  uint4 units[kUnpackUnits];
  ptx::wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    const int unit = first + i * kUnpackThreads;
    if (unit < g.copied_units) units[i] = read_unit(g, unit);
  }
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    const int unit = first + i * kUnpackThreads;
    if (unit < g.copied_units) static_cast<uint4*>(g.copied)[unit] = units[i];
  }
}

}  // namespace unpack

/// What it writes is in the arena, where kernels before it may still read: before the wait it only reads weights. The
/// library's kernel begins after its end.
template <int Bits>
__global__ void __launch_bounds__(kUnpackThreads) unpack_operands(const __grid_constant__ UnpackArgs g) {
  using Unit = std::conditional_t<Bits == 8, uint2, std::uint32_t>;
  const auto block = static_cast<int>(blockIdx.x);
  if (block >= g.weight_blocks) return unpack::copy_rows(g, block - g.weight_blocks);

  const int first = unpack::first_unit(block);
  Unit units[kUnpackUnits];
  float scales[kUnpackUnits];
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    const int unit = first + i * kUnpackThreads;
    if (unit >= g.weight_units) continue;
    units[i] = __ldg(static_cast<const Unit*>(g.weights) + unit);
    const int row = g.units_of_row.divide(unit);
    const int of_row = unit - row * static_cast<int>(g.units_of_row.value);
    scales[i] = __ldg(g.scales + row * g.groups + g.units_of_group.divide(of_row));
  }
  ptx::wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < kUnpackUnits; ++i) {
    const int unit = first + i * kUnpackThreads;
    if (unit < g.weight_units) static_cast<uint4*>(g.unpacked)[unit] = unpack::halves(units[i], scales[i]);
  }
}

namespace unpack {

using Kernel = void (*)(UnpackArgs);

inline Kernel kernel_of(const UnpackArgs& args) {
  return args.bits == 8 ? unpack_operands<8> : unpack_operands<4>;
}

}  // namespace unpack

}  // namespace pipit::internal::cuda
