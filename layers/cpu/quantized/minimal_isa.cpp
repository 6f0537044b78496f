// A minimal build (cmake/PipitMinimal.cmake) has the kernels of one instruction set. What chooses between them refers
// to all of them, so here are empty ones for the others; isa_available() says no to these.
#if defined(PIPIT_MINIMAL)

#include "layers/cpu/linear/gemm_isa.h"
#include "layers/cpu/quantized/depthwise_quads.h"
#include "layers/cpu/quantized/winograd_int8.h"
#include "layers/cpu/tile/tile_isa.h"
#include "layers/cpu/vector/row_kernels_isa.h"

namespace pipit::internal {

#if defined(__AVX2__)
const TileKernels f32_tiles_baseline{}, u8s8_tiles_baseline{};
const PackedKernels packed_kernels_baseline{};
const RowKernels row_kernels_baseline{};
const GemmIsa gemm_baseline{};
#endif

#if PIPIT_ISA_X86
#if !defined(__AVX2__) || defined(__AVX512F__)
const TileKernels f32_tiles_avx2{}, u8s8_tiles_avx2{}, s16_tiles_avx2{}, u8s8_tiles_avxvnni{};
const PackedKernels packed_kernels_avx2{};
const RowKernels row_kernels_avx2{};
const GemmIsa gemm_avx2{};
#endif
#if !defined(__AVX2__)
const ByteWinograd byte_winograd_avx2{};
#endif
#if !defined(__AVX512F__)
const TileKernels f32_tiles_avx512{}, u8s8_tiles_avx512{}, u8s8_tiles_avx512vnni{}, s16_tiles_avx512vnni{};
const PackedKernels packed_kernels_avx512{};
const RowKernels row_kernels_avx512{};
const GemmIsa gemm_avx512{};
const ByteWinograd byte_winograd_avx512vnni{};
#endif
#if PIPIT_ISA_AMX
const TileKernels u8s8_tiles_amx{}, bf16_tiles_amx{};
#endif
#if PIPIT_ISA_BF16
const TileKernels bf16_tiles_avx512bf16{};
#endif
#if PIPIT_ISA_FP16
const TileKernels f16_tiles_avx512fp16{};
#endif
#endif

#if !defined(__AVX512F__)
const QuadKernels* quad_kernels(Isa) {
  return nullptr;
}
#endif

}  // namespace pipit::internal

#endif
