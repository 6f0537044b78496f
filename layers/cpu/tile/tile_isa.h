// What the tile_<isa>.cpp files share. Included before a file raises its target instruction set, with every
// standard header that it needs: inline functions of the standard library compiled for that instruction set could
// be merged by the linker with the copies of all other files.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/platform/isa_build.h"
#include "layers/cpu/tile/packed_kernel.h"
#include "layers/cpu/tile/tile_kernel.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

#define PIPIT_TILE_INLINE __attribute__((always_inline)) static inline
#define PIPIT_TILE_INLINE_LAMBDA __attribute__((always_inline))
// One copy for all callers: what runs once for many products.
#if defined(__clang__)
#define PIPIT_TILE_ONCE __attribute__((noinline)) static
#else
#define PIPIT_TILE_ONCE __attribute__((noinline, noclone)) static
#endif

namespace pipit::internal {

extern const TileKernels f32_tiles_baseline, u8s8_tiles_baseline;
extern const PackedKernels packed_kernels_baseline;
#if PIPIT_ISA_X86
extern const TileKernels f32_tiles_avx2, u8s8_tiles_avx2, s16_tiles_avx2;
extern const TileKernels u8s8_tiles_avxvnni;
extern const TileKernels f32_tiles_avx512, u8s8_tiles_avx512;
extern const TileKernels u8s8_tiles_avx512vnni, s16_tiles_avx512vnni;
extern const PackedKernels packed_kernels_avx2, packed_kernels_avx512;
#endif
#if PIPIT_ISA_AMX
extern const TileKernels u8s8_tiles_amx, bf16_tiles_amx;
#endif
#if PIPIT_ISA_BF16
extern const TileKernels bf16_tiles_avx512bf16;
#endif
#if PIPIT_ISA_FP16
extern const TileKernels f16_tiles_avx512fp16;
#endif

template <typename T>
inline constexpr std::int64_t kVectorBytes = sizeof(typename T::Vector);

}  // namespace pipit::internal
