#include "layers/cpu/linear/gemm_eigen_headers.h"

#define Eigen pipit_eigen_baseline
#define PIPIT_GEMM_ISA baseline
#include "layers/cpu/linear/gemm_eigen.inc"
