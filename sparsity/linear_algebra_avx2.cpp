#define Eigen EigenAvx2
#include "sparsity/linear_algebra_avx2.h"

#if PIPIT_ISA_X86
#include "sparsity/linear_algebra_kernel.h"

namespace pipit::internal {

const LinearAlgebra& linear_algebra_avx2() {
  return kFunctions;
}

}  // namespace pipit::internal
#endif
