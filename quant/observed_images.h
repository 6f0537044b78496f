// What the values of calibration images say of the images: whether there are enough of them, and different ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pipit::internal {

/// The largest magnitude of a tensor in each image, in the order of the images.
struct TensorPeaks {
  std::string name;
  std::vector<float> peaks;
};

/// The probability that an image exceeds the range of n others, all drawn alike: each of the n + 1 is as likely to be
/// the one with the largest magnitude.
double exceeding_probability(std::int64_t images);

/// A tensor whose range the later images leave.
struct OutgrownTensor {
  std::string name;
  double earlier = 0;  ///< the largest magnitude of the earlier images
  double later = 0;    ///< of the later ones
};

/// The tensors whose range in the first `earlier` images says little about the others. Two conditions: the k largest
/// magnitudes all come from later images, and the largest is at least twice that of the earlier ones, so that one of
/// the 8 bits is missing. Images drawn alike fulfil the first with a probability of at most (m / (n + m))^k for n
/// earlier and m later ones; k makes that 1 % for all tensors together (Bonferroni). Nothing where there are too few
/// images. All tensors have as many peaks.
std::vector<OutgrownTensor> outgrown_tensors(std::span<const TensorPeaks> tensors, std::size_t earlier);

/// How much of what a model reads is the same in all images, of one input that all of them have in one shape.
class InputLikeness {
 public:
  /// The values of an image, row-major, in `channels` planes of one size. Throws Error for another number of values
  /// than before.
  void add(std::span<const float> values, std::size_t channels);

  std::int64_t images() const { return images_; }
  /// The intraclass correlation: of the variance within channels, the share that is between positions and the same in
  /// all images (analysis of variance, one group for each position). 0 for images that have nothing to do with each
  /// other and for plain colours, 1 for copies. 0 for fewer than two images.
  double common_share() const;
  /// How many images without anything in common tell as much about a mean: n / (1 + (n - 1) * common_share()), by the
  /// design effect of Kish (1965).
  double effective_images() const;

 private:
  std::int64_t images_ = 0;
  std::size_t channels_ = 1;
  std::vector<double> sums_;  // per position
  std::vector<double> squares_;
};

}  // namespace pipit::internal
