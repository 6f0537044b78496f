#include "sparsity/linear_algebra.h"

#include "engine/platform/isa.h"
#include "sparsity/linear_algebra_avx2.h"
#include "sparsity/linear_algebra_kernel.h"

namespace pipit::internal {

const LinearAlgebra& linear_algebra() {
#if PIPIT_ISA_X86
  if (chosen_isa() >= Isa::avx2) return linear_algebra_avx2();
#endif
  return kFunctions;
}

}  // namespace pipit::internal
