#include "quant/observed_images.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

// What may be wrong by chance, for all tensors together.
constexpr double kChance = 0.01;
constexpr float kBit = 2.0F;

}  // namespace

double exceeding_probability(std::int64_t images) {
  return 1.0 / static_cast<double>(images + 1);
}

std::vector<OutgrownTensor> outgrown_tensors(std::span<const TensorPeaks> tensors, std::size_t earlier) {
  std::vector<OutgrownTensor> found;
  if (tensors.empty()) return found;
  const std::size_t images = tensors[0].peaks.size();
  if (earlier == 0 || earlier >= images) return found;
  const auto later = static_cast<double>(images - earlier);
  const double odds = std::log(static_cast<double>(images) / later);
  const auto k =
      static_cast<std::size_t>(std::ceil(std::log(static_cast<double>(tensors.size()) / kChance) / odds));
  if (k > images - earlier) return found;
  for (const TensorPeaks& tensor : tensors) {
    const auto split = tensor.peaks.begin() + static_cast<std::ptrdiff_t>(earlier);
    const float largest = *std::max_element(tensor.peaks.begin(), split);
    std::vector<float> others(split, tensor.peaks.end());
    std::nth_element(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(k) - 1, others.end(),
                     std::greater<>());
    const float most = *std::max_element(others.begin(), others.end());
    if (others[k - 1] > largest && most >= kBit * largest) found.push_back({tensor.name, largest, most});
  }
  return found;
}

void InputLikeness::add(std::span<const float> values, std::size_t channels) {
  if (images_ == 0) {
    sums_.assign(values.size(), 0);
    squares_.assign(values.size(), 0);
    channels_ = channels > 0 && values.size() % channels == 0 ? channels : 1;
  }
  if (values.size() != sums_.size())
    fail("an image of {} values after one of {}", values.size(), sums_.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    sums_[i] += x;
    squares_[i] += x * x;
  }
  ++images_;
}

double InputLikeness::common_share() const {
  if (images_ < 2 || sums_.size() <= channels_) return 0;
  const auto n = static_cast<double>(images_);
  const std::size_t plane = sums_.size() / channels_;
  double between = 0, within = 0;
  for (std::size_t c = 0; c < channels_; ++c) {
    double mean = 0;
    for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) mean += sums_[i];
    mean /= n * static_cast<double>(plane);
    for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) {
      const double here = sums_[i] / n;
      between += (here - mean) * (here - mean);
      within += std::max(0.0, squares_[i] - sums_[i] * here);
    }
  }
  between *= n / static_cast<double>(sums_.size() - channels_);
  within /= static_cast<double>(sums_.size()) * (n - 1);
  const double all = between + (n - 1) * within;
  // Copies have no variance between them, plain colours no other.
  if (all <= 0) return 1;
  return std::clamp((between - within) / all, 0.0, 1.0);
}

double InputLikeness::effective_images() const {
  const auto n = static_cast<double>(images_);
  return n == 0 ? 0 : n / (1 + (n - 1) * common_share());
}

}  // namespace pipit::internal
