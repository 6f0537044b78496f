#include "layers/cpu/vector/row_kernels.h"

#include "engine/platform/isa.h"
#include "engine/platform/isa_build.h"
#include "layers/cpu/vector/row_kernels_isa.h"

namespace pipit::internal {

const RowKernels& row_kernels() {
#if PIPIT_ROWS_X86
  static const RowKernels& kernels = []() -> const RowKernels& {
    const Isa isa = chosen_isa();
    if (isa >= Isa::avx512) return row_kernels_avx512;
    // Every CPU with AVX2 is expected to have F16C, but it is a feature of its own.
    return isa >= Isa::avx2 && cpu_has_f16c() ? row_kernels_avx2 : row_kernels_baseline;
  }();
  return kernels;
#else
  return row_kernels_baseline;
#endif
}

}  // namespace pipit::internal
