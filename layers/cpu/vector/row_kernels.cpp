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

void widen_row(DType stored, const void* x, std::int64_t first, float* y, std::int64_t count) {
  if (stored == DType::f16) return widen_row(static_cast<const Half*>(x) + first, y, count);
  widen_row(static_cast<const BFloat16*>(x) + first, y, count);
}

void narrow_row(const float* x, DType stored, void* y, std::int64_t first, std::int64_t count) {
  if (stored == DType::f16) return narrow_row(x, static_cast<Half*>(y) + first, count);
  narrow_row(x, static_cast<BFloat16*>(y) + first, count);
}

}  // namespace pipit::internal
