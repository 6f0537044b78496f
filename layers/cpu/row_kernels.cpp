#include "layers/cpu/row_kernels.h"

#include <string_view>

#include "layers/cpu/gemm.h"
#include "layers/cpu/row_kernels_isa.h"

namespace pipit {

const RowKernels& row_kernels() {
#if PIPIT_ROWS_X86
  static const RowKernels& kernels = []() -> const RowKernels& {
    const std::string_view isa = gemm_isa().name;
    if (isa == "avx512") return row_kernels_avx512;
    return isa == "avx2" && __builtin_cpu_supports("f16c") ? row_kernels_avx2 : row_kernels_baseline;
  }();
  return kernels;
#else
  return row_kernels_baseline;
#endif
}

}  // namespace pipit
