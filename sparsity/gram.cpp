#include "sparsity/gram.h"

#include <algorithm>

#include "engine/base/error.h"
#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kChunk = 512;
constexpr std::size_t kColumns = 128;  // of the sums, for one thread

// Weights and bias as [K + 1, outputs].
std::vector<double> with_bias(const Gram& gram, std::span<const float> weights, std::span<const float> bias) {
  if (weights.size() != gram.outputs * gram.depth || (!bias.empty() && bias.size() != gram.outputs))
    fail("{} weights and {} biases for {} outputs of depth {}", weights.size(), bias.size(), gram.outputs,
         gram.depth);
  std::vector<double> all((gram.depth + 1) * gram.outputs, 0.0);
  for (std::size_t o = 0; o < gram.outputs; ++o) {
    for (std::size_t k = 0; k < gram.depth; ++k) all[k * gram.outputs + o] = weights[o * gram.depth + k];
  }
  std::copy(bias.begin(), bias.end(), all.end() - static_cast<std::ptrdiff_t>(gram.outputs));
  return all;
}

// xx w, for w of with_bias().
std::vector<double> product_with(const Gram& gram, const std::vector<double>& w) {
  const std::size_t size = gram.depth + 1;
  std::vector<double> product(w.size(), 0.0);
  linear_algebra().add_product(product.data(), gram.outputs, 1, gram.xx.data(), size, w.data(), gram.outputs,
                               size, gram.outputs, size);
  return product;
}

}  // namespace

Gram::Gram(std::size_t k, std::size_t o)
    : depth(k), outputs(o), xx((k + 1) * (k + 1), 0.0), xy((k + 1) * o, 0.0), yy(o, 0.0) {}

void Gram::merge(const Gram& other) {
  if (other.depth != depth || other.outputs != outputs)
    fail("sums of {} outputs of depth {} cannot be added to those of {} of depth {}", other.outputs,
         other.depth, outputs, depth);
  count += other.count;
  const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  add(xx, other.xx);
  add(xy, other.xy);
  add(yy, other.yy);
}

void Gram::clear_outputs() {
  std::fill(xy.begin(), xy.end(), 0.0);
  std::fill(yy.begin(), yy.end(), 0.0);
}

void Gram::set_outputs(std::span<const float> weights, std::span<const float> bias) {
  const std::vector<double> w = with_bias(*this, weights, bias);
  xy = product_with(*this, w);
  std::fill(yy.begin(), yy.end(), 0.0);
  for (std::size_t i = 0; i < w.size(); ++i) yy[i % outputs] += w[i] * xy[i];
}

double Gram::variance(std::span<const std::uint8_t> skip) const {
  double sum = 0;
  for (std::size_t o = 0; o < outputs && count > 0; ++o) {
    if (!skip.empty() && skip[o] != 0) continue;
    const double mean = xy[depth * outputs + o] / count;
    sum += yy[o] / count - mean * mean;
  }
  return sum;
}

double Gram::error(std::span<const float> weights, std::span<const float> bias,
                   std::span<const std::uint8_t> skip) const {
  if (count == 0) return 0;
  const std::vector<double> w = with_bias(*this, weights, bias);
  const std::vector<double> product = product_with(*this, w);
  double sum = 0;
  const auto counts = [&](std::size_t o) { return skip.empty() || skip[o] == 0; };
  for (std::size_t o = 0; o < outputs; ++o) {
    if (counts(o)) sum += yy[o] / count;
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (counts(i % outputs)) sum += w[i] * (product[i] - 2 * xy[i]) / count;
  }
  return std::max(0.0, sum);
}

double Gram::relative_error(std::span<const float> weights, std::span<const float> bias,
                            std::span<const std::uint8_t> skip) const {
  const double all = variance(skip);
  return all > 0 ? error(weights, bias, skip) / all : 0;
}

GramBuilder::GramBuilder(Gram& gram, ThreadPool& pool, Sums sums)
    : gram_(gram),
      pool_(pool),
      sums_(sums),
      x_(kChunk * (gram.depth + 1)),
      y_(sums == Sums::inputs ? 0 : kChunk * gram.outputs) {}

GramBuilder::~GramBuilder() = default;

GramBuilder::Rows GramBuilder::next(std::size_t wanted) {
  if (rows_ == kChunk) flush();
  const std::size_t stride = gram_.depth + 1;
  const std::size_t count = std::min(wanted, kChunk - rows_);
  float* x = x_.data() + rows_ * stride;
  for (std::size_t i = 0; i < count; ++i) x[i * stride + gram_.depth] = 1;
  float* y = sums_ != Sums::inputs ? y_.data() + rows_ * gram_.outputs : nullptr;
  rows_ += count;
  return {x, y, count, stride};
}

void GramBuilder::finish() {
  if (rows_ > 0) flush();
  if (sums_ == Sums::outputs) return;
  const std::size_t size = gram_.depth + 1;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = i + 1; j < size; ++j) gram_.xx[j * size + i] = gram_.xx[i * size + j];
  }
}

void GramBuilder::flush() {
  const std::size_t size = gram_.depth + 1;
  const std::size_t blocks = (size + kColumns - 1) / kColumns;
  const LinearAlgebra& algebra = linear_algebra();
  // The upper triangle of xx, a block of rows at a time. The first is the longest, and is begun first.
  pool_.parallel_for(static_cast<std::int64_t>(blocks), [&](std::int64_t b, int) {
    const std::size_t first = static_cast<std::size_t>(b) * kColumns;
    const std::size_t rows = std::min(kColumns, size - first);
    if (sums_ != Sums::outputs)
      algebra.add_transposed_product(&gram_.xx[first * size + first], size, &x_[first], size, &x_[first],
                                     size, rows, size - first, rows_);
    if (sums_ != Sums::inputs)
      algebra.add_transposed_product(&gram_.xy[first * gram_.outputs], gram_.outputs, &x_[first], size,
                                     y_.data(), gram_.outputs, rows, gram_.outputs, rows_);
  });
  for (std::size_t i = 0; i < rows_ && sums_ != Sums::inputs; ++i) {
    for (std::size_t o = 0; o < gram_.outputs; ++o) {
      const double y = y_[i * gram_.outputs + o];
      gram_.yy[o] += y * y;
    }
  }
  if (sums_ != Sums::outputs) gram_.count += static_cast<double>(rows_);
  rows_ = 0;
}

}  // namespace pipit::internal
