// The convolutions of `pipit sweep conv`: every combination of lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipit::internal::apps {

/// A square convolution with padding kernel / 2.
struct ConvPoint {
  std::int64_t batch = 1, in = 1, out = 1, size = 1, kernel = 1, stride = 1;

  /// As parse_layer() reads it: "4x8x64x64:16x3x3:s2".
  std::string name() const;
  /// Multiply-accumulates, those on padding counted.
  double macs() const;
};

/// The usual grid: small channels, every size of image and window.
struct ConvGrid {
  std::vector<std::int64_t> batch{1, 4, 8, 16}, in{1, 3, 8, 16, 32}, out{3, 8, 16, 32, 64},
      size{32, 64, 128, 256, 512}, kernel{1, 3, 5, 7, 9, 11}, stride{1, 2};
  /// Otherwise combinations are left out that networks do not have or that take very long: fewer outputs than inputs,
  /// 256x256 and larger with 9x9 and larger, 512x512 with 7x7 and larger or 16 images. Of the usual grid 3686 stay.
  bool all = false;

  /// In the order of the lists, the batch slowest; no point twice.
  std::vector<ConvPoint> points() const;
};

/// `count` different points at random, in random order; those of a smaller count come first in a larger one. All of
/// them, in their order, for a count of 0 or as many as there are.
std::vector<ConvPoint> sample(std::vector<ConvPoint> points, std::size_t count, unsigned seed);

/// Points of one input shape next to each other, otherwise in their order.
std::vector<ConvPoint> by_input(const std::vector<ConvPoint>& points);

}  // namespace pipit::internal::apps
