// 16 bytes of shared memory, by address.
#pragma once

#include <cstdint>

namespace pipit::cuda {

__device__ __forceinline__ uint4 load_four(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
/// 8 bytes of it, each time anew: what is read without `volatile` the assembler reads once for several uses, and moves
/// from register to register.
__device__ __forceinline__ uint2 load_two(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];\n"
               : "=r"(v.x), "=r"(v.y)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_four(std::uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

}  // namespace pipit::cuda
