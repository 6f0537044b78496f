// Eigen's products and factorizations, compiled for the instruction sets that the machine may have: the matrices of
// large layers have some thousand rows.
#pragma once

#include <cstddef>

namespace pipit::internal {

/// All matrices are row-major; `stride` is the distance between rows in elements.
struct LinearAlgebra {
  /// c [m, n] += a^T b, for a [k, m] and b [k, n]: summed over k in f32, added in f64.
  void (*add_transposed_product)(double* c, std::size_t c_stride, const float* a, std::size_t a_stride,
                                 const float* b, std::size_t b_stride, std::size_t m, std::size_t n,
                                 std::size_t k);
  /// c [m, n] += factor * a b, for a [m, k] and b [k, n].
  void (*add_product)(double* c, std::size_t c_stride, double factor, const double* a, std::size_t a_stride,
                      const double* b, std::size_t b_stride, std::size_t m, std::size_t n, std::size_t k);
  /// y [m, n] = x w^T + bias, for x [m, k] and w [n, k]; bias [n] or null.
  void (*outputs)(float* y, const float* x, std::size_t x_stride, const float* w, const float* bias,
                  std::size_t m, std::size_t n, std::size_t k);
  /// Factors a symmetric a [n, n] in place (Cholesky). False when it is not positive definite.
  bool (*factor)(double* a, std::size_t n);
  /// b [n, m] becomes a^-1 b, for a as factor() leaves it.
  void (*solve)(const double* a, std::size_t n, double* b, std::size_t b_stride, std::size_t m);
};

/// For the instruction set that chosen_isa() names, at most AVX2.
const LinearAlgebra& linear_algebra();

}  // namespace pipit::internal
