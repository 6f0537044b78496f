#include "sparsity/round_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/platform/simd.h"
#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kRows = 8;  // rounded together by one thread
constexpr int kMaxSweeps = 20;    // over the integers of a row; few rows take more than five
constexpr int kScaleRounds = 2;   // scales, and then the integers once more
// A change has to lower the error by more than what rounding of its sums can claim.
constexpr double kMinGain = 1e-12;

PIPIT_INLINE inline void add_scaled_loop(double* to, const double* from, double factor, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// sums[r] += the products of factor [count] and errors [count, kRows].
PIPIT_INLINE inline void carry_loop(double* sums, const double* factor, const double* errors,
                                    std::int64_t count) {
  double total[kRows] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < kRows; ++r)
      total[r] += factor[i] * errors[static_cast<std::size_t>(i) * kRows + r];
  }
  for (std::size_t r = 0; r < kRows; ++r) sums[r] += total[r];
}

// The quadratic form of one group of the convolution, and its factor.
struct Form {
  std::size_t depth = 0;
  std::vector<double> h;           // [K, K]: sums of columns, damped
  std::vector<std::size_t> order;  // weights by the variance of their inputs, the least first
  std::vector<double> factor;      // of h in that order, as LinearAlgebra::factor() leaves it
  std::vector<double> wanted;      // [outputs, K]: the weights that fit the targets best
};

// Of a Gram; without a bias to adjust its means are part of it.
std::vector<double> second_moments(const Gram& gram, bool centred) {
  const std::size_t size = gram.depth + 1;
  std::vector<double> h(gram.depth * gram.depth);
  for (std::size_t i = 0; i < gram.depth; ++i) {
    const double mean = centred ? gram.xx[i * size + gram.depth] / gram.count : 0;
    for (std::size_t j = 0; j < gram.depth; ++j)
      h[i * gram.depth + j] = gram.xx[i * size + j] - mean * gram.xx[gram.depth * size + j];
  }
  return h;
}

// The right side of H d = r, for the change d of the dense weights that fits the targets best: [K, outputs].
std::vector<double> residual(const Gram& gram, std::span<const float> dense, std::span<const float> bias,
                             bool centred) {
  const std::size_t size = gram.depth + 1, outputs = gram.outputs;
  std::vector<double> left = gram.xy;
  std::vector<double> w(size * outputs, 0.0);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t k = 0; k < gram.depth; ++k) w[k * outputs + o] = dense[o * gram.depth + k];
    if (!bias.empty()) w[gram.depth * outputs + o] = bias[o];
  }
  linear_algebra().add_product(left.data(), outputs, -1, gram.xx.data(), size, w.data(), outputs, size,
                               outputs, size);
  const double* of_bias = &left[gram.depth * outputs];
  for (std::size_t k = 0; k < gram.depth && centred; ++k) {
    const double mean = gram.xx[k * size + gram.depth] / gram.count;
    for (std::size_t o = 0; o < outputs; ++o) left[k * outputs + o] -= mean * of_bias[o];
  }
  left.resize(gram.depth * outputs);
  return left;
}

// Whether h, in its order, is positive definite.
bool factor(Form& form) {
  const std::size_t n = form.depth;
  form.factor.resize(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) form.factor[i * n + j] = form.h[form.order[i] * n + form.order[j]];
  }
  return linear_algebra().factor(form.factor.data(), n);
}

Form make_form(const Gram& gram, std::span<const float> dense, std::span<const float> bias,
               const RoundingGrid& grid, const RoundingOptions& options) {
  const std::size_t n = gram.depth;
  Form form;
  form.depth = n;
  if (!(gram.count > 0)) return form;
  form.h = second_moments(gram, grid.adjust_bias);
  double trace = 0, moment = 0;
  for (std::size_t k = 0; k < n; ++k) {
    trace += std::max(form.h[k * n + k], 0.0);
    moment += gram.xx[k * (n + 1) + k];
  }
  const auto depth = static_cast<double>(n);
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::ranges::all_of(gram.xx, finite) || !std::ranges::all_of(gram.xy, finite))
    fail("the columns of a layer of depth {} are not finite, or too large for their sums", n);
  if (!(moment > 0)) {
    form.h.clear();
    return form;
  }
  // Inputs that do not vary, as of one image, leave only what rounding to f32 makes of their moments.
  const double rounding = 1e-6 * moment / std::sqrt(depth);
  const double damping =
      std::max((options.damping + options.scarcity * depth / gram.count) * trace / depth, rounding);
  for (std::size_t k = 0; k < n; ++k) form.h[k * n + k] = std::max(form.h[k * n + k], 0.0) + damping;
  form.order.resize(n);
  std::iota(form.order.begin(), form.order.end(), std::size_t{0});
  std::stable_sort(form.order.begin(), form.order.end(),
                   [&](std::size_t a, std::size_t b) { return form.h[a * n + a] < form.h[b * n + b]; });
  // Where one input has most of the moments, their rounding may still be more than the damping.
  for (double more = damping; !factor(form); more *= 10) {
    if (!(more < moment)) fail("the columns of a layer of depth {} are far too large for one another", n);
    for (std::size_t k = 0; k < n; ++k) form.h[k * n + k] += more;
  }
  const std::vector<double> left = residual(gram, dense, bias, grid.adjust_bias);
  std::vector<double> change(left.size());
  for (std::size_t i = 0; i < n; ++i)
    std::copy_n(&left[form.order[i] * gram.outputs], gram.outputs, &change[i * gram.outputs]);
  linear_algebra().solve(form.factor.data(), n, change.data(), gram.outputs, gram.outputs);
  form.wanted.resize(gram.outputs * n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t k = form.order[i];
    for (std::size_t o = 0; o < gram.outputs; ++o)
      form.wanted[o * n + k] = dense[o * n + k] + change[i * gram.outputs + o];
  }
  return form;
}

// One row while it is rounded.
struct Row {
  std::span<const float> dense;
  std::span<const double> wanted;
  std::vector<double> q;       // [K] integers
  std::vector<double> scales;  // [groups], each an f32
  std::vector<double> error;   // [K] q * scale - wanted
  std::vector<double> slope;   // [K] H error
};

class Rounder {
 public:
  Rounder(const Form& form, const RoundingGrid& grid) : form_(form), grid_(grid), n_(form.depth) {}

  // `rows` begin as the nearest integers; each becomes what has the least error.
  void round(std::span<Row> rows) const {
    std::vector<Row> carried(rows.begin(), rows.end());
    if (!grid_.keep_scales) {
      for (Row& row : carried) choose_scales(row);
    }
    carry(carried);
    set_errors(carried);
    set_errors(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      improve(carried[r]);
      improve(rows[r]);
      if (total(carried[r]) < total(rows[r])) std::swap(rows[r], carried[r]);
    }
  }

 private:
  double scale_of(const Row& row, std::size_t k) const { return row.scales[k / grid_.group]; }
  double nearest(double steps) const {
    return std::clamp(std::nearbyint(steps), static_cast<double>(grid_.low), static_cast<double>(grid_.high));
  }
  double curve(std::size_t k) const { return form_.h[k * n_ + k]; }
  double total(const Row& row) const {
    double sum = 0;
    for (std::size_t k = 0; k < n_; ++k) sum += row.error[k] * row.slope[k];
    return sum;
  }

  // Of some multiples of each scale the one with the least error if no error were carried over.
  void choose_scales(Row& row) const {
    for (std::size_t g = 0; g < row.scales.size(); ++g) {
      const std::size_t first = g * grid_.group, last = std::min(n_, first + grid_.group);
      const double begin = row.scales[g];
      double least = INFINITY;
      for (int step = 0; step <= kScaleSteps; ++step) {
        for (const double sign : {1.0, -1.0}) {
          if (sign < 0 && grid_.low == -grid_.high) continue;
          const auto scale = static_cast<double>(
              static_cast<float>(sign * begin * (kMaxScale - (kMaxScale - kMinScale) * step / kScaleSteps)));
          if (!std::isnormal(static_cast<float>(scale))) continue;
          double error = 0;
          for (std::size_t k = first; k < last; ++k) {
            if (row.dense[k] == 0) continue;  // stays 0 with any scale
            const double e = row.wanted[k] - nearest(row.wanted[k] / scale) * scale;
            error += curve(k) * e * e;
          }
          if (error < least) {
            least = error;
            row.scales[g] = scale;
          }
        }
      }
    }
  }
  static constexpr int kScaleSteps = 24;
  static constexpr double kMinScale = 0.6, kMaxScale = 1.08;

  // Rounds one weight after the other, the last of the order first, and carries its error over to the others.
  void carry(std::span<Row> rows) const {
    std::vector<double> errors(n_ * kRows, 0.0);
    for (std::size_t i = n_; i-- > 0;) {
      const double* factor = &form_.factor[i * n_];
      double sums[kRows] = {};
      simd<carry_loop>(sums, factor + i + 1, &errors[(i + 1) * kRows], static_cast<std::int64_t>(n_ - i - 1));
      const std::size_t k = form_.order[i];
      for (std::size_t r = 0; r < rows.size(); ++r) {
        Row& row = rows[r];
        const double wanted = row.wanted[k] - sums[r] / factor[i];
        row.q[k] = row.dense[k] == 0 ? 0 : nearest(wanted / scale_of(row, k));
        errors[i * kRows + r] = row.q[k] * scale_of(row, k) - row.wanted[k];
      }
    }
  }

  void set_errors(std::span<Row> rows) const {
    std::vector<double> errors(rows.size() * n_), slopes(rows.size() * n_, 0.0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t k = 0; k < n_; ++k)
        errors[r * n_ + k] = rows[r].q[k] * scale_of(rows[r], k) - rows[r].wanted[k];
    }
    linear_algebra().add_product(slopes.data(), n_, 1, errors.data(), n_, form_.h.data(), n_, rows.size(), n_,
                                 n_);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto at = static_cast<std::ptrdiff_t>(r * n_);
      rows[r].error.assign(errors.begin() + at, errors.begin() + at + static_cast<std::ptrdiff_t>(n_));
      rows[r].slope.assign(slopes.begin() + at, slopes.begin() + at + static_cast<std::ptrdiff_t>(n_));
    }
  }

  void improve(Row& row) const {
    change_integers(row);
    for (int round = 0; round < kScaleRounds && !grid_.keep_scales; ++round) {
      if (!change_scales(row) || !change_integers(row)) return;
    }
  }

  // Changes single integers while that lowers the error. Whether any was changed.
  bool change_integers(Row& row) const {
    bool any = false;
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      bool changed = false;
      for (std::size_t k = 0; k < n_; ++k) {
        if (row.dense[k] == 0) continue;
        const double scale = scale_of(row, k);
        const double q = nearest(row.q[k] - row.slope[k] / (curve(k) * scale));
        if (q == row.q[k]) continue;
        const double step = (q - row.q[k]) * scale;
        const double gain = -step * (2 * row.slope[k] + step * curve(k));
        if (!(gain > kMinGain * step * step * curve(k))) continue;
        row.q[k] = q;
        row.error[k] += step;
        simd<add_scaled_loop>(row.slope.data(), &form_.h[k * n_], step, static_cast<std::int64_t>(n_));
        changed = any = true;
      }
      if (!changed) break;
    }
    return any;
  }

  // Changes the scale of one group after the other to the one with the least error for these integers.
  bool change_scales(Row& row) const {
    bool any = false;
    std::vector<double> moved(n_);
    for (std::size_t g = 0; g < row.scales.size(); ++g) {
      const std::size_t first = g * grid_.group, last = std::min(n_, first + grid_.group);
      std::fill(moved.begin(), moved.end(), 0.0);
      double slope = 0, bend = 0;
      for (std::size_t k = first; k < last; ++k) {
        if (row.q[k] == 0) continue;
        slope += row.q[k] * row.slope[k];
        simd<add_scaled_loop>(moved.data(), &form_.h[k * n_], row.q[k], static_cast<std::int64_t>(n_));
      }
      for (std::size_t k = first; k < last; ++k) bend += row.q[k] * moved[k];
      if (!(bend > 0)) continue;
      const auto scale = static_cast<float>(row.scales[g] - slope / bend);
      const double step = scale - row.scales[g];
      const bool same_sign = (scale > 0) == (row.scales[g] > 0);
      if (!std::isnormal(scale) || !same_sign ||
          !(-step * (2 * slope + step * bend) > kMinGain * step * step * bend))
        continue;
      row.scales[g] = scale;
      for (std::size_t k = first; k < last; ++k) row.error[k] += step * row.q[k];
      simd<add_scaled_loop>(row.slope.data(), moved.data(), step, static_cast<std::int64_t>(n_));
      any = true;
    }
    return any;
  }

  const Form& form_;
  const RoundingGrid& grid_;
  std::size_t n_;
};

void check(const std::vector<Gram>& sums, const NewWeights& dense, const IntegerWeights& nearest,
           const RoundingGrid& grid) {
  const Shape& shape = dense.weights.shape();
  const auto outputs = static_cast<std::size_t>(shape[0]);
  const auto weights = static_cast<std::size_t>(shape.elements());
  bool fits = grid.group > 0 && !sums.empty() && nearest.integers.size() == weights &&
              (dense.bias.empty() || dense.bias.size() == outputs);
  for (const Gram& gram : sums)
    fits = fits && gram.outputs * sums.size() == outputs && gram.depth * outputs == weights &&
           nearest.scales.size() == outputs * ((gram.depth + grid.group - 1) / grid.group);
  if (!fits)
    fail("{} integers and {} scales in groups of {} for weights {} in {} groups", nearest.integers.size(),
         nearest.scales.size(), grid.group, shape.str(), sums.size());
}

// The bias with which the outputs have the mean of the targets.
float fitted_bias(const Gram& gram, std::size_t output, std::span<const double> weights) {
  double sum = gram.xy[gram.depth * gram.outputs + output];
  const double* means = &gram.xx[gram.depth * (gram.depth + 1)];
  for (std::size_t k = 0; k < gram.depth; ++k) sum -= means[k] * weights[k];
  return static_cast<float>(sum / gram.count);
}

}  // namespace

IntegerWeights round_weights(const std::vector<Gram>& sums, const NewWeights& dense,
                             const IntegerWeights& nearest, const RoundingGrid& grid,
                             const RoundingOptions& options, ThreadPool& pool) {
  check(sums, dense, nearest, grid);
  const std::span<const float> weights = dense.weights.values<float>();
  IntegerWeights made = nearest;
  if (grid.adjust_bias && made.bias.empty())
    made.bias.assign(static_cast<std::size_t>(dense.weights.shape()[0]), 0.0F);
  for (std::size_t g = 0; g < sums.size(); ++g) {
    const Gram& gram = sums[g];
    const std::size_t outputs = gram.outputs, depth = gram.depth;
    const std::size_t groups = (depth + grid.group - 1) / grid.group;
    const std::span<const float> own = weights.subspan(g * outputs * depth, outputs * depth);
    const std::span<const float> bias =
        dense.bias.empty() ? std::span<const float>() : std::span(dense.bias).subspan(g * outputs, outputs);
    const Form form = make_form(gram, own, bias, grid, options);
    if (form.h.empty()) continue;
    const Rounder rounder(form, grid);
    const auto blocks = static_cast<std::int64_t>((outputs + kRows - 1) / kRows);
    pool.parallel_for(blocks, [&](std::int64_t block, int) {
      const std::size_t first = static_cast<std::size_t>(block) * kRows;
      const std::size_t count = std::min(kRows, outputs - first);
      std::vector<Row> rows(count);
      for (std::size_t r = 0; r < count; ++r) {
        const std::size_t o = first + r, row = g * outputs + o;
        rows[r].dense = own.subspan(o * depth, depth);
        rows[r].wanted = std::span(form.wanted).subspan(o * depth, depth);
        const auto q = nearest.integers.begin() + static_cast<std::ptrdiff_t>(row * depth);
        rows[r].q.assign(q, q + static_cast<std::ptrdiff_t>(depth));
        const auto s = nearest.scales.begin() + static_cast<std::ptrdiff_t>(row * groups);
        rows[r].scales.assign(s, s + static_cast<std::ptrdiff_t>(groups));
      }
      rounder.round(rows);
      std::vector<double> real(depth);
      for (std::size_t r = 0; r < count; ++r) {
        const std::size_t o = first + r, row = g * outputs + o;
        for (std::size_t k = 0; k < depth; ++k) {
          made.integers[row * depth + k] = static_cast<std::int8_t>(rows[r].q[k]);
          real[k] = rows[r].q[k] * rows[r].scales[k / grid.group];
        }
        for (std::size_t i = 0; i < groups; ++i)
          made.scales[row * groups + i] = static_cast<float>(rows[r].scales[i]);
        if (grid.adjust_bias) made.bias[row] = fitted_bias(gram, o, real);
      }
    });
  }
  return made;
}

NewWeights real_values(const IntegerWeights& weights, const Shape& shape, std::size_t group) {
  NewWeights real{Tensor(TensorDesc{shape}), weights.bias};
  const std::span<float> to = real.weights.values<float>();
  const std::size_t depth = to.size() / static_cast<std::size_t>(shape[0]);
  const std::size_t groups = (depth + group - 1) / group;
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<float>(weights.integers[i]) * weights.scales[i / depth * groups + i % depth / group];
  return real;
}

}  // namespace pipit::internal
