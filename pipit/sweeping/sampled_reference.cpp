#include "pipit/sweeping/sampled_reference.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/base/error.h"

namespace pipit::internal::detail {

SampledReference::SampledReference(const SparseLayer& layer, const Tensor& x, std::size_t pixels,
                                   ThreadPool& pool) {
  const Shape y = layer.output();
  const Shape& w = layer.weights.weights.shape();
  const Window& window = layer.attributes.window;
  const std::span<const float> in = x.values<float>();
  const std::span<const float> weights = layer.weights.weights.values<float>();
  const auto all = static_cast<std::size_t>(y[0] * y[2] * y[3]);
  const auto width = static_cast<std::size_t>(y[1]);
  std::vector<std::size_t> drawn(std::min(pixels, all));
  std::mt19937 random(3);
  for (std::size_t p = 0; p < drawn.size(); ++p) drawn[p] = pixels >= all ? p : random() % all;
  for (const std::size_t pixel : drawn) {
    for (std::size_t o = 0; o < width; ++o) elements_.push_back(pixel * width + o);
  }
  values_.resize(elements_.size());
  pool.parallel_for(std::ssize(drawn), [&](std::int64_t p, int /*worker*/) {
    const std::size_t pixel = drawn[static_cast<std::size_t>(p)];
    const auto column = static_cast<std::int64_t>(pixel) % y[3];
    const auto row = static_cast<std::int64_t>(pixel) / y[3] % y[2];
    const auto image = static_cast<std::int64_t>(pixel) / (y[2] * y[3]);
    for (std::int64_t o = 0; o < y[1]; ++o) {
      double sum = layer.weights.bias[static_cast<std::size_t>(o)];
      for (std::int64_t c = 0; c < w[1]; ++c) {
        for (std::int64_t r = 0; r < w[2]; ++r) {
          const std::int64_t h = row * window.stride[0] - window.pad_begin[0] + r * window.dilation[0];
          if (h < 0 || h >= x.shape()[2]) continue;
          for (std::int64_t s = 0; s < w[3]; ++s) {
            const std::int64_t v = column * window.stride[1] - window.pad_begin[1] + s * window.dilation[1];
            if (v < 0 || v >= x.shape()[3]) continue;
            sum += double{in[static_cast<std::size_t>(
                       ((image * x.shape()[1] + c) * x.shape()[2] + h) * x.shape()[3] + v)]} *
                   weights[static_cast<std::size_t>(((o * w[1] + c) * w[2] + r) * w[3] + s)];
          }
        }
      }
      values_[static_cast<std::size_t>(p) * width + static_cast<std::size_t>(o)] = sum;
    }
  });
}

double SampledReference::largest() const {
  double most = 0;
  for (const double value : values_) most = std::max(most, std::abs(value));
  return most;
}

SampledError SampledReference::error(std::span<const float> results) const {
  if (results.size() != values_.size()) fail("{} results of {} sampled", results.size(), values_.size());
  SampledError error;
  double squares = 0;
  double reference = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const double difference = std::abs(results[i] - values_[i]);
    error.mae += difference / static_cast<double>(values_.size());
    error.max = std::max(error.max, difference);
    squares += difference * difference;
    reference += values_[i] * values_[i];
  }
  error.relative_l2 = reference > 0 ? std::sqrt(squares / reference) : 0;
  return error;
}

}  // namespace pipit::internal::detail
