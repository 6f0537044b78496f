#include "layers/cpu/gemm_eigen_headers.h"

#define Eigen pipit_eigen_baseline
#define PIPIT_GEMM_ISA baseline
#include "layers/cpu/gemm_eigen.inc"
