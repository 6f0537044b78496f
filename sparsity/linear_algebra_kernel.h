// Compiled once for each instruction set, with Eigen in a namespace of its own: its templates would otherwise have the
// same names in both, and the linker would keep those of either. Nothing of the standard library's is instantiated here
// for the same reason.
#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixD = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
template <typename Matrix>
using View = Eigen::Map<Matrix, 0, Stride>;

Eigen::Index at(std::size_t i) {
  return static_cast<Eigen::Index>(i);
}

void add_transposed_product(double* c, std::size_t c_stride, const float* a, std::size_t a_stride,
                            const float* b, std::size_t b_stride, std::size_t m, std::size_t n,
                            std::size_t k) {
  MatrixF product(at(m), at(n));
  product.noalias() = View<const MatrixF>(a, at(k), at(m), Stride(at(a_stride))).transpose() *
                      View<const MatrixF>(b, at(k), at(n), Stride(at(b_stride)));
  View<MatrixD>(c, at(m), at(n), Stride(at(c_stride))) += product.cast<double>();
}

void add_product(double* c, std::size_t c_stride, double factor, const double* a, std::size_t a_stride,
                 const double* b, std::size_t b_stride, std::size_t m, std::size_t n, std::size_t k) {
  View<MatrixD>(c, at(m), at(n), Stride(at(c_stride))).noalias() +=
      factor * View<const MatrixD>(a, at(m), at(k), Stride(at(a_stride))) *
      View<const MatrixD>(b, at(k), at(n), Stride(at(b_stride)));
}

void outputs(float* y, const float* x, std::size_t x_stride, const float* w, const float* bias, std::size_t m,
             std::size_t n, std::size_t k) {
  View<MatrixF> to(y, at(m), at(n), Stride(at(n)));
  to.noalias() = View<const MatrixF>(x, at(m), at(k), Stride(at(x_stride))) *
                 View<const MatrixF>(w, at(n), at(k), Stride(at(k))).transpose();
  if (bias == nullptr) return;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t o = 0; o < n; ++o) y[i * n + o] += bias[o];
  }
}

// Symmetric, so that the order of storage does not matter: the factor is the lower triangle by columns.
using Factored = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

bool factor(double* a, std::size_t n) {
  Eigen::Map<Factored> matrix(a, at(n), at(n));
  Eigen::LLT<Eigen::Ref<Factored>> llt(matrix);
  return llt.info() == Eigen::Success;
}

void solve(const double* a, std::size_t n, double* b, std::size_t b_stride, std::size_t m) {
  const Eigen::Map<const Factored> matrix(a, at(n), at(n));
  View<MatrixD> right(b, at(n), at(m), Stride(at(b_stride)));
  matrix.triangularView<Eigen::Lower>().solveInPlace(right);
  matrix.triangularView<Eigen::Lower>().transpose().solveInPlace(right);
}

constexpr LinearAlgebra kFunctions{add_transposed_product, add_product, outputs, factor, solve};

}  // namespace

}  // namespace pipit::internal
