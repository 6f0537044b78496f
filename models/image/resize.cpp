#include "models/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

// 32 bits less 8 of the pixel, less 2 for the overshoot of the negative lobes of the bicubic filter.
constexpr int kPrecisionBits = 32 - 8 - 2;
constexpr std::int32_t kRounding = 1 << (kPrecisionBits - 1);

double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// For every target position along one axis, the run of source positions it averages and their weights.
struct Filter {
  struct Run {
    int first = 0;
    int count = 0;
    std::size_t weights_at = 0;
  };
  std::vector<Run> runs;
  std::vector<std::int32_t> weights;
};

// The order and the type of every operation are Pillow's precompute_coeffs: the weights decide the last bit.
Filter make_filter(int source, int target, Interpolation interpolation) {
  const auto kernel = interpolation == Interpolation::bilinear ? triangle : cubic;
  const double scale = static_cast<double>(source) / target;
  const double filter_scale = std::max(scale, 1.0);
  const double support = (interpolation == Interpolation::bilinear ? 1.0 : 2.0) * filter_scale;
  const double inverse_scale = 1.0 / filter_scale;
  Filter filter;
  filter.runs.reserve(std::size_t(target));
  std::vector<double> weights;
  for (int i = 0; i < target; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int last = std::min(static_cast<int>(center + support + 0.5), source);
    weights.clear();
    double sum = 0.0;
    for (int k = 0; k < last - first; ++k) {
      weights.push_back(kernel((k + first - center + 0.5) * inverse_scale));
      sum += weights.back();
    }
    filter.runs.push_back({first, last - first, filter.weights.size()});
    for (double w : weights) {
      if (sum != 0.0) w /= sum;
      const double fixed = w * (1 << kPrecisionBits);
      filter.weights.push_back(static_cast<std::int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
  }
  return filter;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

Image resize_horizontally(const Image& image, int width, const Filter& filter) {
  Image out = make_image({image.height, width}, "resize, between its two passes");
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = out.row(y);
    for (const Filter::Run& run : filter.runs) {
      const std::int32_t* weights = filter.weights.data() + run.weights_at;
      const std::uint8_t* pixel = from + std::size_t(run.first) * 3;
      std::int32_t r = kRounding;
      std::int32_t g = kRounding;
      std::int32_t b = kRounding;
      for (int k = 0; k < run.count; ++k, pixel += 3) {
        r += pixel[0] * weights[k];
        g += pixel[1] * weights[k];
        b += pixel[2] * weights[k];
      }
      *to++ = to_byte(r);
      *to++ = to_byte(g);
      *to++ = to_byte(b);
    }
  }
  return out;
}

Image resize_vertically(const Image& image, int height, const Filter& filter) {
  Image out = make_image({height, image.width}, "resize");
  const std::size_t row_bytes = std::size_t(image.width) * 3;
  std::vector<std::int32_t> sums(row_bytes);
  for (int y = 0; y < height; ++y) {
    const Filter::Run& run = filter.runs[std::size_t(y)];
    std::fill(sums.begin(), sums.end(), kRounding);
    // Row by row instead of column by column: the inner loop is contiguous and independent.
    for (int k = 0; k < run.count; ++k) {
      const std::int32_t weight = filter.weights[run.weights_at + std::size_t(k)];
      const std::uint8_t* from = image.row(run.first + k);
      for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += from[i] * weight;
    }
    std::uint8_t* to = out.row(y);
    for (std::size_t i = 0; i < row_bytes; ++i) to[i] = to_byte(sums[i]);
  }
  return out;
}

// Pillow steps along in floating point, and where a step lands on a pixel border the rounding of that sum
// decides.
std::vector<int> nearest_positions(int source, int target) {
  const double scale = static_cast<double>(source) / target;
  std::vector<int> positions;
  positions.reserve(std::size_t(target));
  double at = scale * 0.5;
  for (int i = 0; i < target; ++i, at += scale)
    positions.push_back(std::min(static_cast<int>(at), source - 1));
  return positions;
}

Image resize_nearest(const Image& image, Extent target) {
  Image out = make_image(target, "resize");
  const std::vector<int> xs = nearest_positions(image.width, target.width);
  const std::vector<int> ys = nearest_positions(image.height, target.height);
  for (int y = 0; y < target.height; ++y) {
    const std::uint8_t* from = image.row(ys[std::size_t(y)]);
    std::uint8_t* to = out.row(y);
    for (const int x : xs) {
      std::memcpy(to, from + std::size_t(x) * 3, 3);
      to += 3;
    }
  }
  return out;
}

// Half of a difference of any sign as Python's int(round(difference / 2.0)): halves go to the even neighbour.
int half_to_even(int difference) {
  const int half = difference / 2;
  return difference % 2 != 0 && half % 2 != 0 ? half + 1 : half;
}

}  // namespace

std::string_view interpolation_name(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::nearest:
      return "nearest";
    case Interpolation::bilinear:
      return "bilinear";
    case Interpolation::bicubic:
      return "bicubic";
  }
  fail("interpolation {} does not exist", static_cast<int>(interpolation));
}

Interpolation parse_interpolation(std::string_view name) {
  for (const auto i : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    if (name == interpolation_name(i)) return i;
  }
  fail("unknown interpolation '{}': expected nearest, bilinear or bicubic", name);
}

Image resize(const Image& image, Extent target, Interpolation interpolation) {
  check_image(image, "resize");
  check_extent(target, "resize");
  if (target == image.extent()) return image;
  if (interpolation == Interpolation::nearest) return resize_nearest(image, target);
  const bool horizontal = target.width != image.width;
  Image between;
  if (horizontal) {
    between = resize_horizontally(image, target.width, make_filter(image.width, target.width, interpolation));
  }
  if (target.height == image.height) return between;
  return resize_vertically(horizontal ? between : image, target.height,
                           make_filter(image.height, target.height, interpolation));
}

Extent short_side_extent(Extent image, int side) {
  if (image.height < 1 || image.width < 1 || side < 1) {
    fail("resizing the short side of {} x {} pixels to {}: all must be at least 1", image.width, image.height,
         side);
  }
  const int shorter = std::min(image.height, image.width);
  const int longer = std::max(image.height, image.width);
  const std::int64_t scaled = std::int64_t{side} * longer / shorter;
  if (side > kMaxImageSide || scaled > kMaxImageSide || scaled * side > kMaxImagePixels) {
    fail(
        "resizing the short side of {} x {} pixels to {} makes the long side {}: above the limit of {} per "
        "side "
        "and {} pixels in all",
        image.width, image.height, side, scaled, kMaxImageSide, kMaxImagePixels);
  }
  const int new_longer = static_cast<int>(scaled);
  return image.width <= image.height ? Extent{new_longer, side} : Extent{side, new_longer};
}

Image center_crop(const Image& image, Extent crop) {
  check_image(image, "centre crop");
  if (crop == image.extent()) return image;
  Image out = make_image(crop, "centre crop");
  // Along an axis: source offset when cropping, target offset when padding.
  const auto offset = [](int size, int wanted) { return size >= wanted ? half_to_even(size - wanted) : 0; };
  const auto padding = [](int size, int wanted) { return size < wanted ? (wanted - size) / 2 : 0; };
  const int rows = std::min(image.height, crop.height);
  const std::size_t row_bytes = std::size_t(std::min(image.width, crop.width)) * 3;
  const std::size_t from_x = std::size_t(offset(image.width, crop.width)) * 3;
  const std::size_t to_x = std::size_t(padding(image.width, crop.width)) * 3;
  for (int y = 0; y < rows; ++y) {
    std::memcpy(out.row(y + padding(image.height, crop.height)) + to_x,
                image.row(y + offset(image.height, crop.height)) + from_x, row_bytes);
  }
  return out;
}

}  // namespace pipit::internal
