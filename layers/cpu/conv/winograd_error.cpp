#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/platform/simd.h"
#include "layers/cpu/conv/winograd.h"

namespace pipit::internal {

namespace {

// Filters looked at: one vector of the output transform.
constexpr std::int64_t kSample = 16;
constexpr int kTaps = 9;
// Outputs smaller than this, relative to the filter's largest, need no precision of their own.
constexpr double kNegligible = 0.01;

// Deterministic and the same everywhere: a linear congruential generator (Numerical Recipes' constants).
class Sequence {
 public:
  /// Uniform in [-1, 1).
  float next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<float>(static_cast<std::int32_t>(state_)) * 0x1p-31F;
  }

 private:
  std::uint32_t state_ = 1;
};

float largest_element(const float* values, std::int64_t count) {
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// The filters with the largest and the smallest elements (of those that are not all zero), then evenly spread ones.
std::vector<std::int64_t> sample_filters(const float* weights, std::int64_t outputs, std::int64_t size) {
  std::vector<std::int64_t> chosen;
  const std::int64_t spread = std::min(outputs, kSample);
  for (std::int64_t i = 0; i < spread; ++i) chosen.push_back(i * outputs / spread);
  if (outputs <= kSample) return chosen;
  float largest = -1;
  float smallest = std::numeric_limits<float>::infinity();
  for (std::int64_t o = 0; o < outputs; ++o) {
    const float element = largest_element(weights + o * size, size);
    if (element > largest) {
      largest = element;
      chosen[kSample - 1] = o;
    }
    if (element > 0 && element < smallest) {
      smallest = element;
      chosen[kSample - 2] = o;
    }
  }
  return chosen;
}

// The sample's filters, tap by tap: [channels][9][kSample], zeros where there are fewer.
std::vector<double> transpose_filters(const float* weights, const std::vector<std::int64_t>& filters,
                                      std::int64_t channels) {
  std::vector<double> taps(static_cast<std::size_t>(channels * kTaps * kSample));
  for (std::size_t f = 0; f < filters.size(); ++f) {
    const float* filter = weights + filters[f] * channels * kTaps;
    for (std::int64_t i = 0; i < channels * kTaps; ++i) {
      taps[static_cast<std::size_t>(i * kSample) + f] = filter[i];
    }
  }
  return taps;
}

// y[kSample] of one output position, and the sums of its squared products. x points at the position's first input in
// [inputs][inputs][channels].
PIPIT_INLINE inline void correlate(const float* x, std::int64_t inputs, std::int64_t channels,
                                   const double* taps, double* y, double* squares) {
  double sum[kSample] = {};
  double square[kSample] = {};
  for (std::int64_t c = 0; c < channels; ++c) {
    for (int t = 0; t < kTaps; ++t) {
      const double value = x[(t / 3 * inputs + t % 3) * channels + c];
      for (std::int64_t o = 0; o < kSample; ++o) {
        const double product = value * taps[(c * kTaps + t) * kSample + o];
        sum[o] += product;
        square[o] += product * product;
      }
    }
  }
  for (std::int64_t o = 0; o < kSample; ++o) {
    y[o] = sum[o];
    squares[o] = square[o];
  }
}

// m[kSample] = sum over channels of v[c] * u[o][c], in f32.
PIPIT_INLINE inline void multiply(const float* v, const float* u, std::int64_t u_step, std::int64_t channels,
                                  float* m) {
  float sum[kSample] = {};
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t o = 0; o < kSample; ++o) sum[o] += v[c] * u[c * u_step + o];
  }
  for (std::int64_t o = 0; o < kSample; ++o) m[o] = sum[o];
}

}  // namespace

double winograd_error(const WinogradTransforms& transforms, const float* weights, std::int64_t outputs,
                      std::int64_t channels) {
  const std::int64_t n = transforms.inputs;
  const std::int64_t m = transforms.outputs;
  const std::vector<std::int64_t> filters = sample_filters(weights, outputs, channels * kTaps);

  std::vector<float> x(static_cast<std::size_t>(n * n * channels));
  Sequence sequence;
  for (std::int64_t pixel = 0; pixel < n * n; ++pixel) {
    const bool dark = sequence.next() < 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float value = sequence.next();
      x[static_cast<std::size_t>(pixel * channels + c)] = dark ? 0.0F : value;
    }
  }

  // Winograd: filters [n * n][channels][kSample], inputs [n * n][channels], products [n * n][kSample].
  const std::int64_t u_plane = channels * kSample;
  const std::int64_t v_plane = channels + 15;
  std::vector<float> u(static_cast<std::size_t>(n * n * u_plane));
  std::vector<float> column(static_cast<std::size_t>(n * n * channels));
  for (std::size_t f = 0; f < filters.size(); ++f) {
    transforms.filters(weights + filters[f] * channels * kTaps, channels, column.data(), channels);
    for (std::int64_t i = 0; i < n * n * channels; ++i) {
      u[static_cast<std::size_t>(i * kSample) + f] = column[static_cast<std::size_t>(i)];
    }
  }
  std::vector<float> v(static_cast<std::size_t>(n * n * v_plane));
  std::vector<float> products(static_cast<std::size_t>(n * n * kSample));
  std::vector<float> y(static_cast<std::size_t>(m * m * kSample));
  transforms.input({x.data(), n, n, channels}, 0, 0, v.data(), v_plane);
  for (std::int64_t i = 0; i < n * n; ++i) {
    simd<multiply>(v.data() + i * v_plane, u.data() + i * u_plane, kSample, channels,
                   products.data() + i * kSample);
  }
  transforms.output(products.data(), kSample,
                    {y.data(), nullptr, nullptr, m * kSample, kSample, m, m, kSample, {}});

  const std::vector<double> taps = transpose_filters(weights, filters, channels);
  std::vector<double> exact(static_cast<std::size_t>(m * m * kSample));
  std::vector<double> squares(exact.size());
  for (std::int64_t p = 0; p < m * m; ++p) {
    simd<correlate>(x.data() + (p / m * n + p % m) * channels, n, channels, taps.data(),
                    exact.data() + p * kSample, squares.data() + p * kSample);
  }
  double sum = 0;
  for (std::size_t f = 0; f < filters.size(); ++f) {
    double largest = 0;
    for (std::size_t i = f; i < exact.size(); i += kSample) largest = std::max(largest, squares[i]);
    for (std::size_t i = f; i < exact.size(); i += kSample) {
      const double error = y[i] - exact[i];
      if (error == 0) continue;
      if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
      sum += error * error / std::max(squares[i], kNegligible * kNegligible * largest);
    }
  }
  return std::sqrt(sum / static_cast<double>(filters.size() * static_cast<std::size_t>(m * m)));
}

}  // namespace pipit::internal
