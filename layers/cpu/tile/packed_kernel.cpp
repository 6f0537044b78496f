#include "layers/cpu/tile/packed_kernel.h"

#include "layers/cpu/tile/tile_isa.h"

namespace pipit::internal {

const PackedKernels& packed_kernels(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512) return packed_kernels_avx512;
  if (isa >= Isa::avx2) return packed_kernels_avx2;
#endif
  static_cast<void>(isa);
  return packed_kernels_baseline;
}

}  // namespace pipit::internal
