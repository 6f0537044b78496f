// Winograd's matrices as the derivation has them, and convolutions that tests hold against the reference.
#pragma once

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "layers/cpu/conv/conv_winograd.h"
#include "layers/ops/conv.h"
#include "tests/layers/conformance.h"

namespace pipit::internal::test {

using Matrix = std::vector<std::vector<double>>;

// The matrices as winograd.h derives them, from the points.
struct Matrices {
  Matrix output, filter, input;  // A^T, G, B^T

  explicit Matrices(int m) {
    const std::vector<double> points =
        m == 2 ? std::vector<double>{0, 1, -1} : std::vector<double>{0, 1, -1, 2, -2};
    const std::size_t n = points.size() + 1;
    const auto vandermonde = [&](std::size_t columns) {
      Matrix v(n, std::vector<double>(columns));
      for (std::size_t i = 0; i + 1 < n; ++i) {
        for (std::size_t j = 0; j < columns; ++j) v[i][j] = std::pow(points[i], j);
      }
      v[n - 1][columns - 1] = 1;
      return v;
    };
    output = transposed(vandermonde(static_cast<std::size_t>(m)));
    filter = vandermonde(3);
    // Row i of B^T = diag(N) V^-T holds the coefficients of the product of all (x - a_j), j != i; the row of infinity
    // those of the product over all points.
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> polynomial{1};
      double scale = 1;
      for (std::size_t j = 0; j + 1 < n; ++j) {
        if (j == i) continue;
        polynomial.push_back(0);
        for (std::size_t k = polynomial.size() - 1; k > 0; --k) {
          polynomial[k] = polynomial[k - 1] - points[j] * polynomial[k];
        }
        polynomial[0] *= -points[j];
        if (i + 1 < n) scale *= points[i] - points[j];
      }
      polynomial.resize(n, 0);
      input.push_back(polynomial);
      for (double& g : filter[i]) g /= scale;
    }
  }

  static Matrix transposed(const Matrix& a) {
    Matrix t(a[0].size(), std::vector<double>(a.size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
    }
    return t;
  }
  static Matrix absolute(Matrix a) {
    for (auto& row : a) {
      for (double& x : row) x = std::abs(x);
    }
    return a;
  }
  // a x a^T for a square x given row by row.
  static std::vector<double> both_sides(const Matrix& a, const std::vector<double>& x) {
    const std::size_t n = a[0].size();
    std::vector<double> y(a.size() * a.size(), 0);
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a.size(); ++j) {
        for (std::size_t k = 0; k < n; ++k) {
          for (std::size_t l = 0; l < n; ++l) y[i * a.size() + j] += a[i][k] * x[k * n + l] * a[j][l];
        }
      }
    }
    return y;
  }
};

struct WinogradCase {
  std::int64_t batch = 1, channels = 1, filters = 1, height = 3, width = 3;
  Window window;
  bool bias = false, residual = false;
  Clamp activation;

  WinogradCase() { window.kernel = {3, 3, 1}; }
};

// What bounds the rounding errors: every transform and sum on absolute values, bias and residual added.
//   |A^T| [ sum over c of (|G| |g| |G^T|) * (|B^T| |d| |B|) ] |A|
inline std::vector<double> magnitude(const WinogradCase& c, int m, const Tensor& x, const Tensor& w,
                                     const Tensor* bias, const Tensor* residual, const Shape& y) {
  Matrices a(m);
  for (Matrix* matrix : {&a.output, &a.filter, &a.input}) *matrix = Matrices::absolute(*matrix);
  const std::int64_t n = m + 2;
  std::vector<std::vector<double>> u;
  for (std::int64_t f = 0; f < c.filters * c.channels; ++f) {
    const auto g = w.values<float>().subspan(static_cast<std::size_t>(f * 9), 9);
    std::vector<double> taps;
    for (const float value : g) taps.push_back(std::abs(value));
    u.push_back(Matrices::both_sides(a.filter, taps));
  }
  std::vector<double> result(static_cast<std::size_t>(y.elements()));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t row = 0; row < y[2]; row += m) {
      for (std::int64_t column = 0; column < y[3]; column += m) {
        std::vector<std::vector<double>> v;
        for (std::int64_t ch = 0; ch < c.channels; ++ch) {
          std::vector<double> d;
          for (std::int64_t i = 0; i < n * n; ++i) {
            const std::int64_t h = row - c.window.pad_begin[0] + i / n;
            const std::int64_t s = column - c.window.pad_begin[1] + i % n;
            const bool inside = h >= 0 && h < c.height && s >= 0 && s < c.width;
            const std::int64_t at = ((b * c.channels + ch) * c.height + h) * c.width + s;
            d.push_back(inside ? std::abs(x.values<float>()[static_cast<std::size_t>(at)]) : 0);
          }
          v.push_back(Matrices::both_sides(a.input, d));
        }
        for (std::int64_t o = 0; o < c.filters; ++o) {
          std::vector<double> sum(static_cast<std::size_t>(n * n));
          for (std::int64_t ch = 0; ch < c.channels; ++ch) {
            const std::vector<double>& filter = u[static_cast<std::size_t>(o * c.channels + ch)];
            for (std::size_t i = 0; i < sum.size(); ++i) {
              sum[i] += filter[i] * v[static_cast<std::size_t>(ch)][i];
            }
          }
          const std::vector<double> tile = Matrices::both_sides(a.output, sum);
          for (std::int64_t i = 0; i < m * m; ++i) {
            const std::int64_t h = row + i / m;
            const std::int64_t s = column + i % m;
            if (h >= y[2] || s >= y[3]) continue;
            const auto at = static_cast<std::size_t>(((b * c.filters + o) * y[2] + h) * y[3] + s);
            result[at] = tile[static_cast<std::size_t>(i)];
            if (bias != nullptr) result[at] += std::abs(bias->values<float>()[static_cast<std::size_t>(o)]);
            if (residual != nullptr) result[at] += std::abs(residual->values<float>()[at]);
          }
        }
      }
    }
  }
  return result;
}

inline ConvAttributes attributes_of(const WinogradCase& c) {
  ConvAttributes attributes;
  attributes.window = c.window;
  attributes.activation = c.activation;
  return attributes;
}

inline std::vector<Isa> winograd_instruction_sets() {
  std::vector<Isa> result;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) result.push_back(isa);
  }
  return result;
}

/// Every instruction set's F(m x m, 3 x 3) against the reference, with these weights, or random ones.
inline void check_winograd(const WinogradCase& c, Random& random, int m,
                           std::shared_ptr<const Tensor> w = nullptr) {
  const auto x = random.tensor(Shape{c.batch, c.channels, c.height, c.width});
  if (w == nullptr) w = random.tensor(Shape{c.filters, c.channels, 3, 3});
  const Shape y = window_output_shape(c.window, x->shape(), c.filters);
  std::vector<Operand> inputs{{x}, {w, true}, {}, {}};
  if (c.bias) inputs[2] = {random.tensor(Shape{c.filters}), true};
  if (c.residual) inputs[3] = {random.tensor(y)};
  Conformance conformance{inputs, {m == 4 ? "winograd_f4x4" : "winograd_f2x2"}};
  conformance.magnitude = magnitude(c, m, *x, *w, inputs[2].tensor.get(), inputs[3].tensor.get(), y);
  // Roundings from an operand to an output: in each pass over a tile at most 4 in the input transform and 4 in the
  // output transform (the chains of the factored transforms), of the filter 1, of the sum 2 per channel without FMA,
  // bias and residual 2, the reference's own 1. Half an epsilon each.
  conformance.scale = static_cast<double>(2 * 4 + 2 * 4 + 1 + 2 * c.channels + 2 + 1) * FLT_EPSILON / 2;
  for (const Isa isa : winograd_instruction_sets()) {
    Registry registry;
    add_winograd(registry, m, {isa, true, std::numeric_limits<double>::infinity()});
    conformance.registry = &registry;
    SCOPED_TRACE(isa_name(isa));
    expect_conformance(Conv(attributes_of(c)), conformance);
  }
}

}  // namespace pipit::internal::test
