// Whether this build contains the x86 instruction sets beyond its baseline, and AVX512-FP16 and AMX, which older
// compilers do not know. AMX needs a system that grants its registers: Linux.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define PIPIT_ISA_X86 1
#if defined(__clang__)
#define PIPIT_ISA_FP16 (__clang_major__ >= 16)  // 14 has the functions with -mavx512fp16 only
#else
#define PIPIT_ISA_FP16 (__GNUC__ >= 12)
#endif
#define PIPIT_ISA_BF16 1
#if defined(__linux__)
#define PIPIT_ISA_AMX PIPIT_ISA_FP16
#else
#define PIPIT_ISA_AMX 0
#endif
#include <cpuid.h>

namespace pipit::internal {

/// What CPUID says; zeros for a leaf that the CPU does not have. __builtin_cpu_supports does not know in every compiler
/// what is asked here.
struct CpuId {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;

  CpuId(unsigned leaf, unsigned subleaf) {
    if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) == 0) a = b = c = d = 0;
  }
};

inline bool cpu_has_avxvnni() {
  return ((CpuId(7, 1).a >> 4) & 1U) != 0;
}
inline bool cpu_has_f16c() {
  return ((CpuId(1, 0).c >> 29) & 1U) != 0;
}
inline bool cpu_has_avx512fp16() {
  return ((CpuId(7, 0).d >> 23) & 1U) != 0;
}
/// Products of bfloat16 in AVX-512 registers.
inline bool cpu_has_avx512bf16() {
  return ((CpuId(7, 1).a >> 5) & 1U) != 0;
}
/// Products of bfloat16 in tile registers.
inline bool cpu_has_amx_bf16() {
  return ((CpuId(7, 0).d >> 22) & 1U) != 0;
}
/// Tile registers, and products of bytes in them.
inline bool cpu_has_amx() {
  return ((CpuId(7, 0).d >> 24) & 3U) == 3U;
}

/// XCR0 bits 17 and 18: the operating system saves tile registers. The CPU must have AVX.
inline bool os_saves_tiles() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((low >> 17) & 3U) == 3U;
}

}  // namespace pipit::internal
#else
#define PIPIT_ISA_X86 0
#define PIPIT_ISA_FP16 0
#define PIPIT_ISA_BF16 0
#define PIPIT_ISA_AMX 0
#endif
