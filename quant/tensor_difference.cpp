#include "quant/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

double decibel(double signal, double noise) {
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace

void TensorDifference::add(const Shape& shape, std::span<const float> reference,
                           std::span<const float> values, float reach) {
  const auto elements = static_cast<std::size_t>(shape.elements());
  if (reference.size() != elements || values.size() != elements)
    fail("a comparison of {} with {} values, expected {} as of {}", values.size(), reference.size(), elements,
         shape.str());
  const std::size_t channels = shape.rank() >= 2 ? static_cast<std::size_t>(shape[1]) : 1;
  if (channels_.empty()) channels_.resize(channels);
  if (channels_.size() != channels)
    fail("a comparison of {} channels after one of {}", channels, channels_.size());
  if (elements == 0) return;
  std::size_t inner = 1;  // neighbours of one channel
  for (int d = 2; d < shape.rank(); ++d) inner *= static_cast<std::size_t>(shape[d]);
  if (shape.rank() < 2) inner = elements;
  for (std::size_t begin = 0; begin < elements; begin += inner) {
    Sums& sums = channels_[begin / inner % channels];
    for (std::size_t i = begin; i < begin + inner; ++i) {
      const double r = reference[i];
      const double v = values[i];
      sums.signal += r * r;
      sums.noise += (v - r) * (v - r);
      values_ += v * v;
      product_ += r * v;
      max_error_ = std::max(max_error_, std::abs(v - r));
      clipped_ += std::abs(reference[i]) > reach ? 1 : 0;
    }
  }
  count_ += elements;
}

double TensorDifference::signal() const {
  double sum = 0;
  for (const Sums& channel : channels_) sum += channel.signal;
  return sum;
}

double TensorDifference::noise() const {
  double sum = 0;
  for (const Sums& channel : channels_) sum += channel.noise;
  return sum;
}

double TensorDifference::cosine() const {
  const double norms = std::sqrt(signal()) * std::sqrt(values_);
  if (norms == 0) return signal() == values_ ? 1 : 0;
  return std::min(product_ / norms, 1.0);
}

double TensorDifference::sqnr_db() const {
  return decibel(signal(), noise());
}

double TensorDifference::clipped() const {
  return count_ == 0 ? 0 : static_cast<double>(clipped_) / static_cast<double>(count_);
}

TensorDifference::Channel TensorDifference::worst_channel() const {
  const auto worst = std::max_element(channels_.begin(), channels_.end(),
                                      [](const Sums& a, const Sums& b) { return a.noise < b.noise; });
  if (worst == channels_.end()) return {};
  const double all = noise();
  return {worst - channels_.begin(), all > 0 ? worst->noise / all : 0, decibel(worst->signal, worst->noise)};
}

}  // namespace pipit::internal
