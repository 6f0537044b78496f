// CUDA C++ for a C++ compiler: the words of the language, and those of its functions that kernels here call.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/cuda/emulation/ptx_calls.h"

#undef __device__
#undef __host__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static_assert(false, "a header with __shared__ that translate.py has not translated");
// The architecture whose instructions are emulated: 9.0a.
#undef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1

#define threadIdx (::pipit::internal::test::emulation::coordinates->thread)
#define blockIdx (::pipit::internal::test::emulation::coordinates->block)
#define blockDim (::pipit::internal::test::emulation::coordinates->block_extent)
#define gridDim (::pipit::internal::test::emulation::coordinates->grid_extent)

namespace pipit::internal::test::emulation {

template <typename T>
inline T shuffled(unsigned mask, T v, int lane, int width) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  bits = shuffle(mask, bits, lane, width);
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

}  // namespace pipit::internal::test::emulation

// ---- Warps and blocks ----

template <typename T>
inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
  return pipit::internal::test::emulation::shuffled(mask, v, lane, width);
}
inline int lane_of_thread() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T v, int lanes) {
  return __shfl_sync(mask, v, lane_of_thread() ^ lanes);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned distance) {
  const int lane = lane_of_thread() - static_cast<int>(distance);
  return __shfl_sync(mask, v, lane < 0 ? lane_of_thread() : lane);
}
// Threads take turns at points that are not here.
template <typename T, typename F>
inline T replaced(T* at, F f) {
  const T old = *at;
  *at = f(old);
  return old;
}
inline int atomicAdd(int* at, int v) {
  return replaced(at, [v](int old) { return old + v; });
}
inline int atomicMax(int* at, int v) {
  return replaced(at, [v](int old) { return std::max(old, v); });
}
inline unsigned atomicMin(unsigned* at, unsigned v) {
  return replaced(at, [v](unsigned old) { return std::min(old, v); });
}
inline int __all_sync(unsigned mask, int p) {
  return pipit::internal::test::emulation::ballot(mask, p != 0) == mask;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) {
  pipit::internal::test::emulation::sync_warp(mask);
}
inline void __syncthreads() {
  pipit::internal::test::emulation::bar_sync(0, -1);
}
inline void __nanosleep(unsigned) {
  pipit::internal::test::emulation::nanosleep();
}
template <typename T>
inline T __ldcg(const T* from) {
  return *from;
}
template <typename T>
inline T __ldg(const T* from) {
  return *from;
}
inline std::size_t __cvta_generic_to_shared(const void* p) {
  return pipit::internal::test::emulation::shared_address(p);
}

// ---- Arithmetic; nothing is contracted to FMA (-ffp-contract=off) ----

inline int __float_as_int(float v) {
  return pipit::internal::test::emulation::as<int>(v);
}
inline unsigned __float_as_uint(float v) {
  return pipit::internal::test::emulation::as<unsigned>(v);
}
inline long long __double_as_longlong(double v) {
  return pipit::internal::test::emulation::as<long long>(v);
}
inline float __int_as_float(int v) {
  return pipit::internal::test::emulation::as<float>(v);
}
inline float __uint_as_float(unsigned v) {
  return pipit::internal::test::emulation::as<float>(v);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
// The product of two halves is exact in double.
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  const float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
  const auto fma = [](double p, double q, double r) { return __double2half(p * q + r); };
  return __halves2half2(fma(x.x, y.x, z.x), fma(x.y, y.y, z.y));
}
inline float __int2float_rn(int v) {
  return static_cast<float>(v);
}
inline int __float2int_rn(float v) {
  return static_cast<int>(std::nearbyint(v));
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i)
    sum += static_cast<std::int8_t>(a >> i * 8) * static_cast<std::int8_t>(b >> i * 8);
  return sum;
}
inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const std::uint64_t both = static_cast<std::uint64_t>(y) << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= static_cast<unsigned>(both >> (s >> i * 4 & 7) * 8 & 0xFF) << i * 8;
  return r;
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  return std::max(a & 0xFFFFU, b & 0xFFFFU) | std::max(a >> 16, b >> 16) << 16;
}
inline unsigned __vimax3_u16x2(unsigned a, unsigned b, unsigned c) {
  return __vmaxu2(__vmaxu2(a, b), c);
}
template <typename F>
unsigned of_both_halves(unsigned a, unsigned b, F f) {
  const auto low = [](unsigned v) { return static_cast<std::int16_t>(v); };
  const auto of = [&](unsigned x, unsigned y) { return static_cast<std::uint16_t>(f(low(x), low(y))); };
  return of(a, b) | static_cast<unsigned>(of(a >> 16, b >> 16)) << 16;
}
inline unsigned __vmaxs2(unsigned a, unsigned b) {
  return of_both_halves(a, b, [](std::int16_t x, std::int16_t y) { return std::max(x, y); });
}
inline unsigned __vmins2(unsigned a, unsigned b) {
  return of_both_halves(a, b, [](std::int16_t x, std::int16_t y) { return std::min(x, y); });
}
template <typename Byte>
unsigned larger_bytes(unsigned a, unsigned b) {
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const auto larger = std::max(static_cast<Byte>(a >> shift), static_cast<Byte>(b >> shift));
    result |= static_cast<unsigned>(static_cast<std::uint8_t>(larger)) << shift;
  }
  return result;
}
inline unsigned __vmaxs4(unsigned a, unsigned b) {
  return larger_bytes<std::int8_t>(a, b);
}
inline unsigned __vmaxu4(unsigned a, unsigned b) {
  return larger_bytes<std::uint8_t>(a, b);
}
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) {
  return __vmaxs2(__vmins2(a, b), 0);
}

template <typename A, typename B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return std::min(static_cast<T>(a), static_cast<T>(b));
}
template <typename A, typename B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return std::max(static_cast<T>(a), static_cast<T>(b));
}
